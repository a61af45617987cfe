"""The model server in Anthropic's messages, seen through the official client."""

import anthropic
import pytest

from nightjar.model_server import Answer, Faults, FixedAnswer, ModelServer, Script, ToolCallAnswer, tool_call

ADD = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {}, "b": {}}}}
QUESTION = {"role": "user", "content": "What is one plus two?"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
CALLED = {"role": "assistant", "content": [USE]}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}
TEXT = {"type": "text", "text": "Hi"}


def client_of(server, **options):
    return anthropic.AsyncAnthropic(
        base_url=server.root_url, max_retries=0, _strict_response_validation=True, **{"api_key": "any", **options}
    )


async def ask(server, messages=(QUESTION,), *, client_options=None, **options):
    async with client_of(server, **(client_options or {})) as client:
        return await client.messages.create(**{"model": "m", "messages": list(messages), "max_tokens": 100, **options})


class Listening:
    """Answers "yes", and remembers what it was asked."""

    def answer(self, messages):
        self.messages = messages
        return Answer("q", "yes")


class TestMessages:
    async def test_text(self):
        with ModelServer(FixedAnswer("It is three.")) as server:
            message = await ask(server)
        assert [(block.type, block.text) for block in message.content] == [("text", "It is three.")]
        assert (message.model, message.stop_reason) == ("m", "end_turn")
        assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 3)
        assert message.usage.cache_read_input_tokens == 0

    async def test_empty_answer_has_no_block(self):
        with ModelServer(FixedAnswer("")) as server:
            message = await ask(server)
        assert (message.content, message.stop_reason) == ([], "end_turn")

    async def test_tool_round_trip_with_thinking(self):
        def conclude(messages):
            return f"The sum is {messages[-1]['content']}."

        calls = Answer("q", "", reasoning="Add them.", tool_calls=(tool_call("add", a=1, b=2),))
        with ModelServer(Script([calls, conclude])) as server:
            first = await ask(server, tools=[ADD])
            thinking, use = first.content
            result = {"type": "tool_result", "tool_use_id": use.id, "content": "3"}
            second = await ask(server, [QUESTION, first.to_param(), {"role": "user", "content": [result]}], tools=[ADD])
        assert first.stop_reason == "tool_use"
        assert (thinking.type, thinking.thinking) == ("thinking", "Add them.")
        assert thinking.signature
        assert (use.type, use.name, use.input) == ("tool_use", "add", {"a": 1, "b": 2})
        assert first.usage.output_tokens_details.thinking_tokens == 2
        assert second.content[0].text == "The sum is 3."

    @pytest.mark.parametrize(
        ("arguments", "sent"),
        [('{"a": 1}', {"a": 1}), ('{"a": 1', {"INVALID_JSON": '{"a": 1'}), ("[1]", {"INVALID_JSON": "[1]"})],
    )
    async def test_arguments_are_always_an_object(self, arguments, sent):
        with ModelServer(Script([ToolCallAnswer("toolu_1", "add", arguments)])) as server:
            block = (await ask(server)).content[0]
        assert (block.id, block.input) == ("toolu_1", sent)

    async def test_max_tokens_cuts_the_answer(self):
        with ModelServer(FixedAnswer("one two three")) as server:
            message = await ask(server, max_tokens=2)
        assert message.content[0].text == "one two"
        assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 2)

    async def test_answerer_sees_chat_messages(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        messages = [
            {"role": "user", "content": [image, {"type": "text", "text": "Add."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "Well: "},
                    {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "one"}]},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ]
        listening = Listening()
        with ModelServer(listening) as server:
            await ask(server, messages, system=[{"type": "text", "text": "Be brief."}])
        function = {"name": "add", "arguments": '{"a":1}'}
        assert listening.messages == [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "text", "text": "Add."},
                ],
            },
            {
                "role": "assistant",
                "content": "Well: ",
                "reasoning_content": "Hm.",
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "one"}]},
            {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
        ]

    async def test_plain_system_prompt(self):
        listening = Listening()
        with ModelServer(listening) as server:
            await ask(server, system="Be brief.")
        assert listening.messages[0] == {"role": "system", "content": "Be brief."}


class TestRefusals:
    @pytest.mark.parametrize(
        ("messages", "complaint"),
        [
            ([QUESTION, CALLED, QUESTION], "without `tool_result` blocks immediately after: toolu_1"),
            ([QUESTION, {"role": "user", "content": [RESULT]}], "unexpected `tool_use_id` found .* toolu_1"),
            (
                [QUESTION, CALLED, {"role": "user", "content": [TEXT, RESULT]}],
                "2.content.1: tool_result blocks must come",
            ),
            ([{"role": "user", "content": ""}], "messages.0: all messages must have non-empty content"),
            ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "text content blocks must be non-empty"),
            ([{"role": "tool", "content": "3"}], "messages.0: needs the role"),
            ([{"role": "user", "content": [{"type": "image_url"}]}], "0.content.0: not a content block .* 'image_url'"),
            (
                [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}]}],
                "'thinking'",
            ),
            ([], "at least one message"),
        ],
    )
    async def test_conversation_that_does_not_fit_together(self, messages, complaint):
        with (
            ModelServer(FixedAnswer("yes")) as server,
            pytest.raises(anthropic.BadRequestError, match=complaint) as caught,
        ):
            await ask(server, messages)
        assert caught.value.type == "invalid_request_error"
        assert caught.value.body["type"] == "error"

    async def test_max_tokens_is_required(self):
        with (
            ModelServer(FixedAnswer("yes")) as server,
            pytest.raises(anthropic.BadRequestError, match="max_tokens: Field"),
        ):
            await ask(server, extra_body={"max_tokens": None})

    async def test_version_header_is_required(self):
        with (
            ModelServer(FixedAnswer("yes")) as server,
            pytest.raises(anthropic.BadRequestError, match="anthropic-version: header is required"),
        ):
            await ask(server, extra_headers={"anthropic-version": anthropic.omit})

    async def test_prompt_that_is_too_long(self):
        with (
            ModelServer(FixedAnswer("yes"), max_context_tokens=5) as server,
            pytest.raises(anthropic.BadRequestError, match="prompt is too long: 7 tokens > 5 maximum"),
        ):
            await ask(server, system="Be brief.")

    @pytest.mark.parametrize("options", [{"api_key": "sesame"}, {"api_key": None, "auth_token": "sesame"}])
    async def test_key_in_either_header(self, options, monkeypatch):
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        with ModelServer(FixedAnswer("yes"), require_key="sesame") as server:
            assert (await ask(server, client_options=options)).content[0].text == "yes"
            with pytest.raises(anthropic.AuthenticationError) as caught:
                await ask(server, client_options={"api_key": "wrong"})
        assert caught.value.type == "authentication_error"

    async def test_unknown_model(self):
        with (
            ModelServer(FixedAnswer("yes"), only_model="other") as server,
            pytest.raises(anthropic.NotFoundError) as caught,
        ):
            await ask(server)
        assert caught.value.type == "not_found_error"

    @pytest.mark.parametrize(
        ("faults", "status", "kind"),
        [
            (Faults(rate_429=1, retry_after_seconds=7), 429, "rate_limit_error"),
            (Faults(rate_overloaded=1, retry_after_seconds=7), 529, "overloaded_error"),
            (Faults(rate_500=1), 500, "api_error"),
        ],
    )
    async def test_faults(self, faults, status, kind):
        with (
            ModelServer(FixedAnswer("yes"), faults=faults) as server,
            pytest.raises(anthropic.APIStatusError) as caught,
        ):
            await ask(server)
        assert (caught.value.status_code, caught.value.type) == (status, kind)
        assert caught.value.response.headers.get("retry-after") == (None if status == 500 else "7")
