"""The client of OpenAI's Responses API: items in, items out, and reasoning that is sent back."""

import pytest

from nightjar.clients import ClientConfig, OpenAIResponsesClient
from nightjar.core.messages import (
    AssistantMessage,
    SystemMessage,
    TextMessage,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from nightjar.errors import EmptyModelResponseError, InvalidModelResponseError, ModelError

ASKED = [UserMessage(content="2+2?")]
REASONING = {
    "type": "reasoning", "id": "rs_1", "encrypted_content": "zzz",
    "summary": [{"type": "summary_text", "text": "First"}, {"type": "summary_text", "text": "then"}],
}  # fmt: skip
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}


def said(*parts):
    content = [
        {"type": "output_text", "text": part, "annotations": []} if isinstance(part, str) else part for part in parts
    ]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def response(*items, status="completed", **fields):
    return {
        "id": "r1",
        "object": "response",
        "created_at": 17.5,
        "model": "served",
        "status": status,
        "output": [*items],
        **fields,
    }


@pytest.fixture
async def client(canned):
    async with OpenAIResponsesClient(ClientConfig(api_base_url=canned.url, max_retries=0)) as client:
        yield client


@pytest.fixture
def ask(canned, client):
    """Asks the canned server, which answers with the body given."""

    async def ask(body=None, *, prompt=ASKED, sampling_args=None, tools=None):
        canned.reply(response(said("4")) if body is None else body)
        return await client.get_response(prompt, "m", sampling_args or {}, tools)

    return ask


class TestPrompt:
    async def sent(self, ask, canned, *prompt, **kwargs):
        await ask(prompt=list(prompt) or ASKED, **kwargs)
        path, _, body = canned.requests[-1]
        assert path == "/v1/responses"
        return body

    async def test_messages(self, ask, canned):
        body = await self.sent(ask, canned, SystemMessage(content="s"), *ASKED, TextMessage(content="t"))
        assert body == {
            "model": "m",
            "input": [
                {"type": "message", "role": "system", "content": "s"},
                {"type": "message", "role": "user", "content": "2+2?"},
                {"type": "message", "role": "user", "content": "t"},
            ],
        }

    async def test_calls_and_results(self, ask, canned):
        image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
        texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        body = await self.sent(
            ask,
            canned,
            AssistantMessage(
                content=[{"type": "text", "text": "I add."}], tool_calls=[ToolCall(id="c1", name="add", arguments="{}")]
            ),
            ToolMessage(tool_call_id="c1", content=texts),
            ToolMessage(tool_call_id="c2", content=[image]),
        )
        assert body["input"] == [
            {"type": "message", "role": "assistant", "content": "I add."},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a b"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}],
            },
        ]

    async def test_parts(self, ask, canned):
        parts = [
            {"type": "text", "text": "Which?"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            {"type": "input_file", "file_id": "f1"},
        ]
        body = await self.sent(ask, canned, UserMessage(content=parts))
        assert body["input"][0]["content"] == [
            {"type": "input_text", "text": "Which?"},
            {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
            {"type": "input_file", "file_id": "f1"},
        ]

    async def test_audio_is_refused(self, ask, canned):
        audio = {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}}
        with pytest.raises(ModelError, match="takes no audio"):
            await ask(prompt=[UserMessage(content=[audio])])
        assert canned.requests == []

    async def test_tools(self, ask, canned):
        tools = [
            Tool(name="add", description="adds", parameters={}),
            Tool(name="sub", description="", parameters={}, strict=True),
        ]
        body = await self.sent(ask, canned, tools=tools)
        assert body["tools"] == [
            {"type": "function", "name": "add", "description": "adds", "parameters": {}},
            {"type": "function", "name": "sub", "description": "", "parameters": {}, "strict": True},
        ]


class TestSamplingArgs:
    async def sent(self, ask, canned, **sampling_args):
        await ask(sampling_args=sampling_args)
        return {name: value for name, value in canned.requests[-1][2].items() if name not in {"model", "input"}}

    async def test_the_protocol_s_own_limit_comes_first(self, ask, canned):
        limits = {"max_output_tokens": 1, "max_tokens": 2, "max_completion_tokens": 3}
        assert await self.sent(ask, canned, **limits) == {"max_output_tokens": 1}

    async def test_the_effort_of_reasoning(self, ask, canned):
        found = await self.sent(ask, canned, reasoning_effort="low", reasoning={"summary": "auto"})
        assert found == {"reasoning": {"effort": "low", "summary": "auto"}}

    async def test_what_means_nothing_here_is_left_out(self, ask, canned):
        assert await self.sent(ask, canned, n=1, stop=[], modalities=["text"]) == {}

    @pytest.mark.parametrize("arguments", [{"n": 2}, {"stop": ["END"]}])
    async def test_what_the_protocol_cannot_do_is_refused(self, ask, canned, arguments):
        with pytest.raises(ModelError, match=f"remove '{next(iter(arguments))}' from"):
            await ask(sampling_args=arguments)
        assert canned.requests == []


class TestAnswers:
    async def test_text_reasoning_and_calls(self, ask):
        usage = {
            "input_tokens": 5, "output_tokens": 7, "total_tokens": 12, "output_tokens_details": {"reasoning_tokens": 3},
        }  # fmt: skip
        found = await ask(response(REASONING, said("I ", "add."), CALL, usage=usage))
        message = found.message
        assert (found.id, found.created, found.model) == ("r1", 17, "served")
        assert (message.content, message.reasoning_content) == ("I add.", "First\nthen")
        assert message.tool_calls == [ToolCall(id="c1", name="add", arguments='{"a": 1}')]
        assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.reasoning_tokens) == (5, 7, 3)

    @pytest.mark.parametrize(
        ("fields", "finish_reason", "is_truncated"),
        [
            ({"status": "completed"}, "stop", False),
            ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length", True),
            ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, None, False),
        ],
    )
    async def test_how_it_ended(self, ask, fields, finish_reason, is_truncated):
        message = (await ask(response(said("4"), **fields))).message
        assert (message.finish_reason, message.is_truncated) == (finish_reason, is_truncated)

    async def test_a_refusal_is_an_answer(self, ask):
        assert (await ask(response(said({"type": "refusal", "refusal": "No."})))).message.content == "No."

    async def test_no_room_for_an_answer_is_one(self, ask):
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        message = (await ask(response(**cut))).message
        assert (message.content, message.is_truncated) == (None, True)

    @pytest.mark.parametrize(
        "items", [[REASONING, said("4")], [REASONING, CALL], [{"type": "web_search_call", "id": "w"}, said("x")]]
    )
    async def test_what_the_model_put_out_is_sent_back_as_it_came(self, ask, canned, items):
        message = (await ask(response(*items))).message
        turn = AssistantMessage.model_validate(message.model_dump(exclude={"finish_reason", "is_truncated", "tokens"}))
        await ask(prompt=[*ASKED, turn])
        assert canned.requests[-1][2]["input"][1:] == items

    @pytest.mark.parametrize(
        "change", [{"content": "5"}, {"tool_calls": [ToolCall(id="c1", name="add", arguments='{"a": 2}')]}], ids=str
    )
    async def test_but_not_where_the_environment_has_changed_it(self, ask, canned, change):
        message = (await ask(response(REASONING, said("4"), CALL))).message
        for name, value in change.items():
            message[name] = value
        await ask(prompt=[*ASKED, message])
        types = [item["type"] for item in canned.requests[-1][2]["input"]]
        assert types == ["message", "message", "function_call"], "the reasoning behind other words is gone"


class TestUnusableAnswers:
    async def test_nothing_at_all(self, ask):
        with pytest.raises(EmptyModelResponseError):
            await ask(response())

    async def test_an_error_with_status_200(self, ask):
        with pytest.raises(InvalidModelResponseError, match="the endpoint failed: out of order"):
            await ask(response(status="failed", error={"code": "server_error", "message": "out of order"}))

    @pytest.mark.parametrize("body", [{"id": "r1"}, {"output": None}, {"output": "x"}, b"<html>", b"", [1]])
    async def test_another_shape_than_the_protocol_s(self, ask, body):
        with pytest.raises(InvalidModelResponseError):
            await ask(body)

    async def test_arguments_that_are_no_text(self, ask):
        with pytest.raises(InvalidModelResponseError, match="another shape"):
            await ask(response({**CALL, "arguments": {"a": 1}}))
