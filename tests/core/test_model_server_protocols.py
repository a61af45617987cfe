"""The model server over HTTP: what holds in every protocol, invalid requests, scripts, and recorded requests."""

import json

import aiohttp
import pytest

from nightjar.errors import ConfigError, DatasetError
from nightjar.model_server import Answer, Faults, FixedAnswer, ModelServer, Script, ToolCallAnswer, tool_call

SAID = {"role": "assistant", "content": "Which?"}
QUESTION = {"role": "user", "content": "Hello there?"}
REQUESTS = {
    "/v1/chat/completions": {"messages": [QUESTION]},
    "/v1/chat/completions/tokens": {"messages": [QUESTION], "tokens": [1, 2]},
    "/v1/completions": {"prompt": "Hello there?"},
    "/v1/responses": {"input": "Hello there?"},
    "/v1/messages": {"messages": [QUESTION], "max_tokens": 100},
}
CHAT, TOKENS, TEXT, RESPONSES, MESSAGES = REQUESTS
every_protocol = pytest.mark.parametrize("path", REQUESTS)


@pytest.fixture
async def http():
    async with aiohttp.ClientSession(headers={"anthropic-version": "2023-06-01"}) as session:
        yield session


@pytest.fixture(scope="module")
def server():
    with ModelServer(FixedAnswer("forty two"), only_model="m") as server:
        yield server


async def post(http, server, path, *, headers=None, **fields):
    body = {"model": "m", **REQUESTS[path], **fields}
    async with http.post(server.root_url + path, json=body, headers=headers) as response:
        return response.status, json.loads(await response.text())


@every_protocol
async def test_every_protocol_counts_an_answer_under_its_question(http, server, path):
    server.reset_stats()
    status, body = await post(http, server, path)
    assert (status, server.stats().questions) == (200, {"Hello there?": 1})
    assert "forty two" in json.dumps(body)


@every_protocol
async def test_every_protocol_has_faults_with_a_status(http, path):
    for faults, status, anthropic_type in [
        ({"rate_429": 1, "retry_after_seconds": 7}, 429, "rate_limit_error"),
        ({"rate_overloaded": 1, "retry_after_seconds": 7}, 503, "overloaded_error"),
        ({"rate_500": 1}, 500, "api_error"),
    ]:
        with ModelServer(FixedAnswer("yes"), faults=Faults(**faults)) as server:
            async with http.post(server.root_url + path, json={"model": "m", **REQUESTS[path]}) as response:
                error = (await response.json())["error"]
        assert response.status == (529 if (path, status) == (MESSAGES, 503) else status)
        assert response.headers.get("Retry-After") == (None if status == 500 else "7")
        assert error["message"]
        if path == MESSAGES:
            assert error["type"] == anthropic_type
        else:
            assert error["code"] == ("rate_limit_exceeded" if status == 429 else None)


@every_protocol
async def test_every_protocol_refuses_models_and_settings_that_it_does_not_have(http, server, path):
    for fields, status in [({"model": ""}, 400), ({"model": "other"}, 404), ({"stream": True}, 400), ({"n": 2}, 400)]:
        server.reset_stats()
        found, body = await post(http, server, path, **fields)
        stats = server.stats()
        assert (found, stats.received, stats.refused, stats.answered) == (status, 1, 1, 0)
        assert body["error"]["message"]
        if path == MESSAGES:
            assert body["error"]["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
        elif status == 404:
            assert body["error"]["code"] == "model_not_found"


@every_protocol
async def test_every_protocol_refuses_a_prompt_that_is_too_long(http, path):
    with ModelServer(FixedAnswer("yes"), max_context_tokens=2) as server:
        fitting, _ = await post(http, server, path)
    with ModelServer(FixedAnswer("yes"), max_context_tokens=1) as server:
        status, body = await post(http, server, path)
    assert (fitting, status) == (200, 400)
    error = body["error"]
    if path == MESSAGES:
        assert error["message"] == "prompt is too long: 2 tokens > 1 maximum"
    else:
        param = "input" if path == RESPONSES else "messages"
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
        assert ("context window" if path == RESPONSES else "maximum context length is 1") in error["message"]


@every_protocol
async def test_every_protocol_checks_the_key(http, path):
    with ModelServer(FixedAnswer("yes"), require_key="sesame") as server:
        without, body = await post(http, server, path)
        bearer, _ = await post(http, server, path, headers={"Authorization": "Bearer sesame"})
        x_api_key, _ = await post(http, server, path, headers={"x-api-key": "sesame"})
        async with http.get(f"{server.url}/models") as models:
            assert models.status == 401
    assert (without, bearer) == (401, 200)
    assert x_api_key == (200 if path == MESSAGES else 401)
    error = body["error"]
    assert (error.get("code") or error["type"]) in {"invalid_api_key", "authentication_error"}


@every_protocol
async def test_every_protocol_refuses_a_question_without_an_answer(http, path):
    with ModelServer(Script([])) as server:
        status, body = await post(http, server, path)
    assert (status, "turn 1" in body["error"]["message"]) == (400, True)
    assert path == MESSAGES or body["error"]["code"] == "unknown_question"


CHAT_TOOL = {"type": "function", "function": {"name": "add"}}
FUNCTION = {"name": "add", "arguments": "{}"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": FUNCTION}]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "3"}
ITEM = {"type": "function_call", "call_id": "call_1", **FUNCTION}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
USED = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}]}
BLOCK = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}
HI = {"type": "text", "text": "Hi"}


def user(*content):
    return {"role": "user", "content": list(content)}


INVALID = [
    *((CHAT, {"messages": messages}, "messages") for messages in (None, [])),
    (CHAT, {"messages": ["Hi"]}, "messages[0]"), (CHAT, {"messages": [user("Hi")]}, "messages[0]"),
    (CHAT, {"messages": [QUESTION, {"role": "user", "content": 3}]}, "messages[1]"),
    (CHAT, {"messages": [QUESTION, RESULT]}, "messages[1]"), (CHAT, {"messages": [QUESTION, CALLED]}, "messages[1]"),
    (CHAT, {"messages": [QUESTION, CALLED, QUESTION, RESULT]}, "messages[1]"),
    (CHAT, {"messages": [QUESTION, CALLED, RESULT, RESULT]}, "messages[3]"),
    (CHAT, {"messages": [QUESTION, {**CALLED, "tool_calls": [{"id": "1", **FUNCTION}]}]}, "messages[1]"),
    (CHAT, {"messages": [QUESTION, CALLED, {"role": "tool", "content": "3"}]}, "messages[2]"),
    (CHAT, {"max_tokens": 0}, "max_tokens"),
    (CHAT, {"tools": [CHAT_TOOL, {"name": "add", "input_schema": {}}]}, "tools[1].function"),
    (TOKENS, {"tools": [{"name": "add", "input_schema": {}}]}, "tools[0].function"),
    *((TOKENS, {"tokens": tokens}, "tokens") for tokens in (None, [], "1 2", [1, "2"])),
    (TEXT, {"prompt": [1, 2, 3]}, "prompt"), (TEXT, {"prompt": ["one", "two"]}, "prompt"),
    (TEXT, {"max_tokens": 0}, "max_tokens"), (RESPONSES, {"input": []}, "input"),
    (RESPONSES, {"input": [QUESTION, ITEM, QUESTION]}, "input"), (RESPONSES, {"input": [QUESTION, OUTPUT]}, "input"),
    (RESPONSES, {"input": [QUESTION, {"type": "item_reference", "id": "x"}]}, "input[1]"),
    (RESPONSES, {"input": [{"role": "tool", "content": "3"}]}, "input[0]"),
    (RESPONSES, {"input": [user(HI)]}, "input[0].content[0]"),
    (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
    (RESPONSES, {"tools": [CHAT_TOOL]}, "tools[0].name"), (MESSAGES, {"messages": []}, "messages: "),
    (MESSAGES, {"messages": [QUESTION, USED, QUESTION]}, "without `tool_result` blocks immediately after: toolu_1"),
    (MESSAGES, {"messages": [QUESTION, user(BLOCK)]}, "`tool_result` blocks: toolu_1"),
    (MESSAGES, {"messages": [QUESTION, USED, user(HI, BLOCK)]}, "messages.2.content.1: "),
    (MESSAGES, {"messages": [{"role": "user", "content": ""}]}, "messages.0: "),
    (MESSAGES, {"messages": [user({"type": "text", "text": ""})]}, "messages.0.content.0: "),
    (MESSAGES, {"messages": [{"role": "tool", "content": "3"}]}, "messages.0: "),
    (MESSAGES, {"messages": [user({"type": "image_url"})]}, "'image_url'"),
    (MESSAGES, {"messages": [{"role": "assistant", "content": [{"type": "thinking", "signature": ""}]}]}, "'thinking'"),
    (MESSAGES, {"max_tokens": None}, "max_tokens: "), (MESSAGES, {"tools": [CHAT_TOOL]}, "tools.0: "),
    *((path, {"tools": tools}, "tools") for path in REQUESTS if path != TEXT for tools in (1, True, "add", {"a": 1})),
    *((path, {"tools": [tool]}, "tools") for path in REQUESTS if path != TEXT for tool in (None, 1)),
]  # fmt: skip


@every_protocol
async def test_an_invalid_request_is_refused_with_its_place(http, server, path):
    for fields, place in ((fields, place) for of, fields, place in INVALID if of == path):
        status, body = await post(http, server, path, **fields)
        error = body["error"]
        assert (status, error["type"], bool(error["message"])) == (400, "invalid_request_error", True)
        if path == MESSAGES:
            assert (place in error["message"], body["type"]) == (True, "error")
        else:
            assert error["param"] == place or (place, error["param"][:9]) == ("tools", "tools[0].")


async def test_a_body_that_is_no_json_object_is_refused(http, server):
    for body in ("{", "[]"):
        async with http.post(server.root_url + CHAT, data=body) as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, None)


async def test_anthropic_s_protocol_requires_the_header_of_its_version(server):
    async with aiohttp.ClientSession() as http:
        status, body = await post(http, server, MESSAGES)
    assert (status, "anthropic-version" in body["error"]["message"]) == (400, True)


async def test_recorded_requests_are_the_last_ones_without_credentials_and_none_by_default(http, server):
    await post(http, server, TEXT)
    assert server.requests == []
    with ModelServer(FixedAnswer("yes"), keep_requests=2) as keeping:
        for path in (RESPONSES, TEXT, MESSAGES):
            headers = {"Authorization": "Bearer secret", "x-api-key": "secret", "X-Session": "7"}
            await post(http, keeping, path, headers=headers, temperature=0.5)
        completion, message = keeping.requests
    assert (completion.path, message.path) == (TEXT, MESSAGES)
    assert completion.body == {"model": "m", "prompt": "Hello there?", "temperature": 0.5}
    assert message.headers["x-session"] == message.headers["X-Session"] == "7"
    assert "secret" not in str(message.headers)
    assert keeping.requests == [completion, message]


async def test_recorded_requests_include_refused_and_faulty_ones(http):
    with ModelServer(FixedAnswer("yes"), faults=Faults(rate_500=1), keep_requests=9) as server:
        await post(http, server, TEXT, model="")
        await post(http, server, TEXT)
        assert [request.body["model"] for request in server.requests] == ["", "m"]


def test_a_script_has_turns_of_every_kind_or_one_function_for_all():
    call = tool_call("add", a=1)
    whole = Answer("counted as this", "Done.", reasoning="Hm.")
    script = Script(["Which?", call, [call, call], whole, lambda messages: f"I said {len(messages)} things."])
    answers = [script.answer([QUESTION, *[SAID] * turn]) for turn in (0, 0, 1, 2, 3, 4)]
    assert answers == [
        Answer("Hello there?", "Which?"), Answer("Hello there?", "Which?"),
        Answer("Hello there?", "", tool_calls=(call,)), Answer("Hello there?", "", tool_calls=(call, call)), whole,
        Answer("Hello there?", "I said 5 things."),
    ]  # fmt: skip
    script = Script(lambda messages: "even" if len(messages) % 2 == 0 else tool_call("count"))
    assert script.answer([QUESTION]).tool_calls == (ToolCallAnswer("", "count", "{}"),)
    assert script.answer([QUESTION, SAID]).text == "even"


def test_a_script_that_ends_too_early_or_is_a_text_is_refused():
    with pytest.raises(DatasetError, match=r"1 turns.* turn 2"):
        Script(["first"]).answer([QUESTION, SAID])
    with pytest.raises(ConfigError, match="'yes'"):
        Script("yes")
