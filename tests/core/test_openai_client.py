"""The chat completions client: requests, answers odd and plain, and the errors that failures become."""

import base64
import struct

import openai
import pytest

from nightjar.clients import ClientConfig, resolve_client
from nightjar.core.messages import (
    AssistantMessage,
    SystemMessage,
    TextMessage,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from nightjar.environments.rubrics import JudgeRubric
from nightjar.errors import (
    EmptyModelResponseError,
    InvalidModelResponseError,
    ModelError,
    OverlongPromptError,
    error_chain,
)

ASKED = [UserMessage(content="2+2?")]
MESSAGE = {"role": "assistant", "content": "4"}
MISSING = object()


def completion(message=MISSING, finish_reason="stop", **fields):
    """Returns the body of a chat completion; a field set to MISSING is left out."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": MESSAGE if message is MISSING else message}
    body = {"id": "c1", "object": "chat.completion", "created": 17, "model": "served", "choices": [choice], **fields}
    return {name: value for name, value in body.items() if value is not MISSING}


@pytest.fixture
async def client_of():
    """Makes clients, and closes them in the end."""
    made = []

    def make(url, **fields):
        made.append(resolve_client(ClientConfig(**{"api_base_url": url, "max_retries": 0} | fields)))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
def ask(canned, client_of):
    """Asks the canned server, which answers with the body given."""

    async def ask(body, status=200, *, prompt=None, sampling_args=None, tools=None, **kwargs):
        canned.reply(body, status)
        return await client_of(canned.url).get_response(prompt or ASKED, "m", sampling_args or {}, tools, **kwargs)

    return ask


class TestRequest:
    async def sent(self, ask, canned, **kwargs):
        await ask(completion(), **kwargs)
        path, headers, body = canned.requests[-1]
        assert path == "/v1/chat/completions"
        return headers, body

    async def test_model_and_messages(self, ask, canned):
        _, body = await self.sent(ask, canned)
        assert body == {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}

    async def test_tool_calls_and_results_as_openai_writes_them(self, ask, canned):
        call = ToolCall(id="c1", name="add", arguments="{}")
        prompt = [
            SystemMessage(content="s"),
            AssistantMessage(content=None, tool_calls=[call], thinking_blocks=[{"type": "thinking"}]),
            ToolMessage(tool_call_id="c1", content="4"),
        ]
        _, body = await self.sent(ask, canned, prompt=prompt)
        function = {"name": "add", "arguments": "{}"}
        assert body["messages"] == [
            {"role": "system", "content": "s"},
            {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
        ]

    async def test_a_plain_text_is_the_user_s(self, ask, canned):
        _, body = await self.sent(ask, canned, prompt=[TextMessage(content="2+2=")])
        assert body["messages"] == [{"role": "user", "content": "2+2="}]

    async def test_parts_of_every_kind_go_as_they_are(self, ask, canned):
        parts = [
            {"type": "text", "text": "Which?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,YQ==", "detail": "low"}},
            {"type": "something_new", "value": [1, {"a": 2}]},
        ]
        _, body = await self.sent(ask, canned, prompt=[UserMessage(content=parts)])
        assert (body["messages"][0]["content"], "modalities" in body) == (parts, False)

    async def test_where_there_is_audio_text_is_asked_for(self, ask, canned):
        prompt = [UserMessage(content=[{"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}}])]
        _, body = await self.sent(ask, canned, prompt=prompt)
        assert body["modalities"] == ["text"]
        _, body = await self.sent(ask, canned, prompt=prompt, sampling_args={"modalities": ["text", "audio"]})
        assert body["modalities"] == ["text", "audio"]

    async def test_fields_that_an_environment_adds_are_sent(self, ask, canned):
        _, body = await self.sent(ask, canned, prompt=[UserMessage(content="2+2?", name="ann")])
        assert body["messages"] == [{"role": "user", "content": "2+2?", "name": "ann"}]

    async def test_the_message_of_a_response_can_be_the_next_turn(self, ask, canned):
        said = (await ask(completion({"role": "assistant", "content": "4", "reasoning": "hm"}))).message
        said["openai_responses_output"] = [{"type": "reasoning"}]
        _, body = await self.sent(ask, canned, prompt=[said])
        assert body["messages"] == [{"role": "assistant", "content": "4", "reasoning_content": "hm"}]

    async def test_a_message_that_is_changed_later_is_sent_as_it_is_then(self, ask, canned):
        message = UserMessage(content="2+2?")
        await self.sent(ask, canned, prompt=[message])
        message["content"] = "3+3?"
        _, body = await self.sent(ask, canned, prompt=[message])
        assert body["messages"] == [{"role": "user", "content": "3+3?"}]

    async def test_tools_as_openai_writes_them(self, ask, canned):
        tools = [
            Tool(name="add", description="adds", parameters={"type": "object"}),
            Tool(name="sub", description="", parameters={}, strict=True),
        ]
        _, body = await self.sent(ask, canned, tools=tools)
        add = {"name": "add", "description": "adds", "parameters": {"type": "object"}}
        sub = {"name": "sub", "description": "", "parameters": {}, "strict": True}
        assert body["tools"] == [{"type": "function", "function": function} for function in (add, sub)]


class TestAnswer:
    async def test_text_model_and_usage(self, ask):
        details = {"reasoning_tokens": 3}
        usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12, "completion_tokens_details": details}
        response = await ask(completion(usage=usage))
        assert (response.id, response.created, response.model) == ("c1", 17, "served")
        assert response.usage.model_dump() == {
            "prompt_tokens": 5,
            "completion_tokens": 7,
            "reasoning_tokens": 3,
            "total_tokens": 12,
        }
        assert (response.message.content, response.message.finish_reason) == ("4", "stop")

    @pytest.mark.parametrize("usage", [None, MISSING])
    async def test_no_usage(self, ask, usage):
        assert (await ask(completion(usage=usage))).usage is None

    @pytest.mark.parametrize("field", ["id", "created", "model", "object"])
    async def test_a_field_that_a_server_leaves_out(self, ask, field):
        assert (await ask(completion(**{field: MISSING}))).message.content == "4"

    async def test_usage_with_half_of_its_fields(self, ask):
        usage = (await ask(completion(usage={"prompt_tokens": 5}))).usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (5, 0)

    @pytest.mark.parametrize(("reason", "is_truncated"), [("stop", False), ("length", True), ("tool_calls", False)])
    async def test_how_it_ended(self, ask, reason, is_truncated):
        message = (await ask(completion(finish_reason=reason))).message
        assert (message.finish_reason, message.is_truncated) == (reason, is_truncated)

    @pytest.mark.parametrize("reason", [None, "eos", "content_filter"])
    async def test_an_end_that_nightjar_does_not_know(self, ask, reason):
        assert (await ask(completion(finish_reason=reason))).message.finish_reason is None

    @pytest.mark.parametrize(
        "fields",
        [
            {"reasoning_content": "hm"},
            {"reasoning": "hm"},
            {"reasoning_details": [{"type": "reasoning.text", "text": "h"}, {"summary": "m"}]},
        ],
        ids=lambda fields: next(iter(fields)),
    )
    async def test_reasoning_alone_is_an_answer(self, ask, fields):
        message = (await ask(completion({"role": "assistant", "content": None, **fields}))).message
        assert (message.content, message.reasoning_content) == (None, "hm")

    async def test_a_refusal_is_an_answer(self, ask):
        message = (await ask(completion({"role": "assistant", "content": None, "refusal": "No."}))).message
        assert (message.content, message.finish_reason) == ("No.", "stop")

    async def test_usage_in_the_words_of_newer_protocols(self, ask):
        usage = (await ask(completion(usage={"input_tokens": 5, "output_tokens": 7}))).usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 7, 12)

    async def test_token_ids_from_a_server_that_sends_them(self, ask):
        numbers = [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]  # three tokens, two layers, two experts each
        packed = struct.pack("<12i", *range(12))
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": MESSAGE,
            "token_ids": [3],
            "logprobs": {"content": [{"token": "4", "logprob": -0.5, "bytes": None, "top_logprobs": []}]},
            "routed_experts": {"data": base64.b85encode(packed).decode(), "shape": [3, 2, 2]},
        }
        tokens = (await ask(completion(choices=[choice], prompt_token_ids=[1, 2]))).message.tokens
        assert (tokens.prompt_ids, tokens.prompt_mask) == ([1, 2], [0, 0])
        assert (tokens.completion_ids, tokens.completion_mask, tokens.completion_logprobs) == ([3], [1], [-0.5])
        assert tokens.routed_experts == numbers

    @pytest.mark.parametrize("missing", ["token_ids", "logprobs"])
    async def test_no_token_ids_without_all_that_belongs_to_them(self, ask, missing):
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": MESSAGE,
            "token_ids": [3],
            "logprobs": {"content": []},
        }
        choice[missing] = None
        assert (await ask(completion(choices=[choice], prompt_token_ids=[1, 2]))).message.tokens is None

    async def test_tool_calls_alone_are_an_answer(self, ask):
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        body = completion({"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")
        assert (await ask(body)).message.tool_calls == [ToolCall(id="c1", name="add", arguments='{"a": 1}')]


class TestUnusableAnswers:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (completion(choices=[]), "expected one choice, found 0"),
            (
                completion(choices=[{"index": n, "finish_reason": "stop", "message": MESSAGE} for n in (0, 1)]),
                "found 2",
            ),
            (completion(choices=None), "expected one choice, found none"),
            (completion(choices=MISSING), "expected one choice, found none"),
            (completion(choices=[{"index": 0, "finish_reason": "stop"}]), "a choice without a message"),
            ([1], "not the JSON that the protocol promises"),
            (b"<html>502</html>", "not the JSON that the protocol promises: b'<html>502</html>'"),
            (b"", "not the JSON that the protocol promises"),
        ],
    )
    async def test_another_shape_than_the_protocol_s(self, ask, body, message):
        with pytest.raises(InvalidModelResponseError, match=message):
            await ask(body)

    async def test_an_error_that_comes_as_a_success_is_shown(self, ask):
        with pytest.raises(InvalidModelResponseError, match="upstream overloaded"):
            await ask({"error": {"message": "upstream overloaded", "code": 502}})

    async def test_tool_arguments_that_are_no_text(self, ask):
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
        with pytest.raises(InvalidModelResponseError):
            await ask(completion({"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"))

    @pytest.mark.parametrize("content", ["", None])
    async def test_nothing_at_all(self, ask, content):
        with pytest.raises(EmptyModelResponseError, match="no text, reasoning or tool call"):
            await ask(completion({"role": "assistant", "content": content}))


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "cause"),
        [
            (400, openai.BadRequestError),
            (404, openai.NotFoundError),
            (408, openai.APIStatusError),
            (409, openai.ConflictError),
            (422, openai.UnprocessableEntityError),
            (429, openai.RateLimitError),
            (500, openai.InternalServerError),
            (503, openai.InternalServerError),
        ],
    )
    async def test_a_status_is_a_model_error_that_the_sdk_s_error_caused(self, ask, status, cause):
        with pytest.raises(ModelError, match=r"Model 'm': Error code: .*no luck") as caught:
            await ask({"error": {"message": "no luck"}}, status)
        assert (type(caught.value.__cause__), caught.value.__cause__.status_code) == (cause, status)

    @pytest.mark.parametrize(
        ("status", "kind"), [(401, openai.AuthenticationError), (403, openai.PermissionDeniedError)]
    )
    async def test_rejected_credentials_are_raised_as_they_are(self, ask, status, kind):
        with pytest.raises(kind, match="no such key"):
            await ask({"error": {"message": "no such key"}}, status)

    @pytest.mark.parametrize("status", [400, 413])
    async def test_a_prompt_that_is_too_long_by_the_message(self, ask, status):
        message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000."
        with pytest.raises(OverlongPromptError, match="maximum context length is 8192"):
            await ask({"error": {"message": message}}, status)

    async def test_a_prompt_that_is_too_long_by_the_code(self, ask):
        with pytest.raises(OverlongPromptError):
            await ask({"error": {"message": "Too much.", "code": "context_length_exceeded"}}, 400)

    async def test_the_same_words_with_another_status_say_nothing(self, ask):
        with pytest.raises(ModelError):
            await ask({"error": {"message": "context length"}}, 500)


class TestAnSdkClientThatTheUserMade:
    KEY = "sk-very-secret-0123456789"

    @pytest.mark.parametrize("status", [400, 401, 500])
    async def test_its_key_is_hidden_where_the_server_echoes_it(self, canned, status):
        canned.reply({"error": {"message": f"Incorrect API key provided: {self.KEY}"}}, status)
        async with openai.AsyncOpenAI(base_url=canned.url, api_key=self.KEY, max_retries=0) as sdk:
            with pytest.raises(Exception, match="Incorrect API key provided") as caught:
                await resolve_client(sdk).get_response(ASKED, "m", {})
        said = [f"{error} {error!r} {getattr(error, 'message', '')}" for error in error_chain(caught.value)]
        assert "[API key]" in said[0]
        assert self.KEY not in " ".join(said)

    async def test_a_judge_hides_its_key_too(self, canned):
        canned.reply({"error": {"message": f"Incorrect API key provided: {self.KEY}"}}, 401)
        async with openai.AsyncOpenAI(base_url=canned.url, api_key=self.KEY, max_retries=0) as sdk:
            with pytest.raises(ModelError, match=r"\[API key\]") as caught:
                await JudgeRubric(judge_client=sdk).judge("2+2?", "4", "4")
        assert self.KEY not in "".join(map(repr, error_chain(caught.value)))
