"""What holds for the model server in every protocol, scripts, and the record of what was asked."""

import json

import aiohttp
import pytest

from nightjar.errors import ConfigError, DatasetError
from nightjar.model_server import Answer, Faults, FixedAnswer, ModelServer, Script, ToolCallAnswer, tool_call
from nightjar.model_server.protocols import PROTOCOLS

SAID = {"role": "assistant", "content": "Which?"}
QUESTION = {"role": "user", "content": "Hello there?"}
REQUESTS = {
    "/v1/chat/completions": {"messages": [QUESTION]},
    "/v1/chat/completions/tokens": {"messages": [QUESTION], "tokens": [1, 2]},
    "/v1/completions": {"prompt": "Hello there?"},
    "/v1/responses": {"input": "Hello there?"},
    "/v1/messages": {"messages": [QUESTION], "max_tokens": 100},
}
CHAT_TOOL = {"type": "function", "function": {"name": "add"}}
every_protocol = pytest.mark.parametrize("path", [protocol.path for protocol in PROTOCOLS])


@pytest.fixture
async def http():
    async with aiohttp.ClientSession(headers={"anthropic-version": "2023-06-01"}) as session:
        yield session


async def post(http, server, path, *, headers=None, **fields):
    body = {"model": "m", **REQUESTS[path], **fields}
    async with http.post(server.root_url + path, json=body, headers=headers) as response:
        return response.status, json.loads(await response.text())


class TestEveryProtocol:
    @every_protocol
    async def test_answer_is_counted_under_its_question(self, http, path):
        with ModelServer(FixedAnswer("forty two")) as server:
            status, body = await post(http, server, path)
            assert server.stats().questions == {"Hello there?": 1}
        assert status == 200
        assert "forty two" in json.dumps(body)

    @every_protocol
    @pytest.mark.parametrize(
        ("faults", "status"),
        [({"rate_429": 1}, 429), ({"rate_500": 1}, 500), ({"rate_overloaded": 1}, 503)],
    )
    async def test_faults_with_a_status(self, http, path, faults, status):
        if path == "/v1/messages" and status == 503:
            status = 529
        with ModelServer(FixedAnswer("yes"), faults=Faults(**faults)) as server:
            found, body = await post(http, server, path)
        assert found == status
        assert body["error"]["message"]
        assert ("code" in body["error"]) == (path != "/v1/messages")

    @every_protocol
    async def test_broken_answers(self, http, path):
        with (
            ModelServer(FixedAnswer("yes"), faults=Faults(rate_malformed=1)) as server,
            pytest.raises(json.JSONDecodeError),
        ):
            await post(http, server, path)
        with (
            ModelServer(FixedAnswer("yes"), faults=Faults(rate_dropped=1)) as server,
            pytest.raises(aiohttp.ClientConnectionError),
        ):
            await post(http, server, path)
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_slow=1, slow_seconds=0.05)) as server:
            status, _ = await post(http, server, path)
            assert status == 200

    @every_protocol
    @pytest.mark.parametrize(
        ("fields", "status"),
        [({"model": ""}, 400), ({"model": "other"}, 404), ({"stream": True}, 400), ({"n": 2}, 400)],
    )
    async def test_refusals(self, http, path, fields, status):
        with ModelServer(FixedAnswer("yes"), only_model="m") as server:
            found, body = await post(http, server, path, **fields)
            assert server.stats().refused == 1
        assert found == status
        assert body["error"]["message"]

    @pytest.mark.parametrize("path", [path for path in REQUESTS if path != "/v1/completions"])
    @pytest.mark.parametrize("tools", [1, True, "add", {"name": "add"}, [None], [1]])
    async def test_tools_of_another_shape(self, http, path, tools):
        with ModelServer(FixedAnswer("yes")) as server:
            found, body = await post(http, server, path, tools=tools)
        assert (found, bool(body["error"]["message"])) == (400, True)

    @pytest.mark.parametrize(
        ("path", "tools", "param"),
        [
            ("/v1/chat/completions", [CHAT_TOOL, {"name": "add", "input_schema": {}}], "tools[1].function"),
            ("/v1/chat/completions/tokens", [{"name": "add", "input_schema": {}}], "tools[0].function"),
            ("/v1/responses", [CHAT_TOOL], "tools[0].name"),
            ("/v1/messages", [CHAT_TOOL], "tools.0"),
        ],
    )
    async def test_tool_in_the_form_of_another_protocol(self, http, path, tools, param):
        with ModelServer(FixedAnswer("yes")) as server:
            status, body = await post(http, server, path, tools=tools)
        error = body["error"]
        assert (status, error.get("param") or error["message"].partition(":")[0]) == (400, param)

    @every_protocol
    async def test_prompt_that_is_too_long(self, http, path):
        with ModelServer(FixedAnswer("yes"), max_context_tokens=2) as server:
            fitting, _ = await post(http, server, path)
        with ModelServer(FixedAnswer("yes"), max_context_tokens=1) as server:
            status, body = await post(http, server, path)
        assert (fitting, status) == (200, 400)
        if path == "/v1/messages":
            assert body["error"]["message"] == "prompt is too long: 2 tokens > 1 maximum"
            return
        is_responses = path == "/v1/responses"
        said = "exceeds the context window" if is_responses else "maximum context length is 1 tokens. However, your"
        assert said in body["error"]["message"]
        assert body["error"]["code"] == "context_length_exceeded"
        assert body["error"]["param"] == ("input" if is_responses else "messages")

    @every_protocol
    async def test_key(self, http, path):
        with ModelServer(FixedAnswer("yes"), require_key="sesame") as server:
            without, _ = await post(http, server, path)
            bearer, _ = await post(http, server, path, headers={"Authorization": "Bearer sesame"})
            x_api_key, _ = await post(http, server, path, headers={"x-api-key": "sesame"})
        assert (without, bearer) == (401, 200)
        assert x_api_key == (200 if path == "/v1/messages" else 401)

    @every_protocol
    async def test_question_without_an_answer(self, http, path):
        with ModelServer(Script([])) as server:
            status, body = await post(http, server, path)
        assert status == 400
        assert "asks for turn 1" in body["error"]["message"]


class TestRecordedRequests:
    async def test_last_requests_without_credentials(self, http):
        with ModelServer(FixedAnswer("yes"), keep_requests=2) as server:
            for path in ("/v1/responses", "/v1/completions", "/v1/messages"):
                headers = {"Authorization": "Bearer secret", "x-api-key": "secret", "X-Session": "7"}
                await post(http, server, path, headers=headers, temperature=0.5)
            completion, message = server.requests
        assert completion.path == "/v1/completions"
        assert completion.body == {"model": "m", "prompt": "Hello there?", "temperature": 0.5}
        assert message.path == "/v1/messages"
        assert message.headers["x-session"] == message.headers["X-Session"] == "7"
        assert "secret" not in str(message.headers)
        assert server.requests == [completion, message]

    async def test_refused_and_faulty_requests_are_kept(self, http):
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_500=1), keep_requests=9) as server:
            await post(http, server, "/v1/completions", model="")
            await post(http, server, "/v1/completions")
            assert [request.body["model"] for request in server.requests] == ["", "m"]

    async def test_nothing_is_kept_unless_asked_for(self, http):
        with ModelServer(FixedAnswer("yes")) as server:
            await post(http, server, "/v1/completions")
            assert server.requests == []


class TestScript:
    def test_turns_of_every_kind(self):
        call = tool_call("add", a=1)
        whole = Answer("counted as this", "Done.", reasoning="Hm.")
        script = Script(["Which?", call, [call, call], whole, lambda messages: f"I said {len(messages)} things."])
        answers = [script.answer([QUESTION, *[SAID] * turn]) for turn in range(5)]
        assert answers == [
            Answer("Hello there?", "Which?"),
            Answer("Hello there?", "", tool_calls=(call,)),
            Answer("Hello there?", "", tool_calls=(call, call)),
            whole,
            Answer("Hello there?", "I said 5 things."),
        ]

    def test_one_function_for_all_turns(self):
        script = Script(lambda messages: "even" if len(messages) % 2 == 0 else tool_call("count"))
        assert script.answer([QUESTION]).tool_calls == (ToolCallAnswer("", "count", "{}"),)
        assert script.answer([QUESTION, SAID]).text == "even"

    def test_conversations_do_not_disturb_each_other(self):
        script = Script(["first", "second"])
        said = [script.answer([QUESTION]).text for _ in range(3)]
        assert said == ["first"] * 3

    def test_script_that_ends_too_early(self):
        with pytest.raises(DatasetError, match="has 1 turns, and the conversation asks for turn 2"):
            Script(["first"]).answer([QUESTION, SAID])

    def test_text_is_no_script(self):
        with pytest.raises(ConfigError, match="found the text 'yes'"):
            Script("yes")
