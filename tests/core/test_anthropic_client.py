"""The Anthropic client: messages and arguments as the protocol has them, and answers of every kind."""

import anthropic
import pytest

from nightjar.clients import AnthropicMessagesClient, ClientConfig
from nightjar.core.messages import AssistantMessage, SystemMessage, Tool, ToolCall, ToolMessage, UserMessage
from nightjar.errors import EmptyModelResponseError, InvalidModelResponseError, ModelError

KEY = "sk-ant-very-secret-0123456789"
ASKED = [UserMessage(content="2+2?")]
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s1"}
HIDDEN = {"type": "redacted_thinking", "data": "x1"}
CALL = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}


def text(said):
    return {"type": "text", "text": said}


def message(*content, stop_reason="end_turn", usage=None, **fields):
    usage = usage or {"input_tokens": 5, "output_tokens": 7}
    return {
        "id": "m1", "type": "message", "role": "assistant", "model": "served", "content": list(content),
        "stop_reason": stop_reason, "stop_sequence": None, "usage": usage, **fields,
    }  # fmt: skip


@pytest.fixture
async def client(canned, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    async with AnthropicMessagesClient(
        ClientConfig(api_base_url=canned.url, api_key_var="TEST_KEY", max_retries=0)
    ) as client:
        yield client


@pytest.fixture
def ask(canned, client):
    """Asks the canned server, which answers with the body given."""

    async def ask(body=None, status=200, *, prompt=ASKED, sampling_args=None, tools=None, **kwargs):
        canned.reply(message(text("4")) if body is None else body, status)
        return await client.get_response(prompt, "m", {"max_tokens": 9, **(sampling_args or {})}, tools, **kwargs)

    return ask


class TestPrompt:
    async def sent(self, ask, canned, *prompt, **kwargs):
        await ask(prompt=list(prompt) or ASKED, **kwargs)
        path, _, body = canned.requests[-1]
        assert path == "/v1/messages", "once /v1, whether the base URL has it or not"
        return body

    async def test_model_limit_and_messages(self, ask, canned):
        body = await self.sent(ask, canned)
        assert body == {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "2+2?"}]}

    async def test_system_messages_are_lifted_out(self, ask, canned):
        parts = [{"type": "text", "text": "b"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
        body = await self.sent(ask, canned, SystemMessage(content="a"), *ASKED, SystemMessage(content=parts))
        assert (body["system"], len(body["messages"])) == ("a\n\nb [image]", 1)

    async def test_results_of_one_turn_are_one_message(self, ask, canned):
        calls = [ToolCall(id=name, name="add", arguments="") for name in ("t1", "t2")]
        results = [ToolMessage(tool_call_id=name, content=f"result of {name}") for name in ("t1", "t2")]
        body = await self.sent(ask, canned, *ASKED, AssistantMessage(tool_calls=calls), *results, *ASKED)
        assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user", "user"]
        assert body["messages"][1]["content"] == [
            {"type": "tool_use", "id": name, "name": "add", "input": {}} for name in ("t1", "t2")
        ]
        assert body["messages"][2]["content"] == [
            {"type": "tool_result", "tool_use_id": name, "content": f"result of {name}"} for name in ("t1", "t2")
        ]

    async def test_results_of_two_turns_are_two_messages(self, ask, canned):
        turn = [
            AssistantMessage(tool_calls=[ToolCall(id="t1", name="add", arguments="{}")]),
            ToolMessage(tool_call_id="t1", content="1"),
        ]
        body = await self.sent(ask, canned, *turn, *turn)
        assert [one["role"] for one in body["messages"]] == ["assistant", "user"] * 2

    @pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"text"'])
    async def test_arguments_that_are_no_object_are_put_into_one(self, ask, canned, arguments):
        call = ToolCall(id="t1", name="add", arguments=arguments)
        body = await self.sent(ask, canned, AssistantMessage(tool_calls=[call]))
        assert body["messages"][0]["content"][0]["input"] == {"INVALID_JSON": arguments}

    @pytest.mark.parametrize(
        ("url", "source"),
        [
            ("https://x/y.png", {"type": "url", "url": "https://x/y.png"}),
            ("data:image/gif;base64,YQ==", {"type": "base64", "media_type": "image/gif", "data": "YQ=="}),
            ("data:;base64,YQ==", {"type": "base64", "media_type": "image/png", "data": "YQ=="}),
            ("data:image/svg+xml,%3Csvg", {"type": "base64", "media_type": "image/svg+xml", "data": "PHN2Zw=="}),
        ],
    )
    async def test_images(self, ask, canned, url, source):
        body = await self.sent(
            ask, canned, UserMessage(content=[{"type": "image_url", "image_url": {"url": url}}])
        )  # fmt: skip
        assert body["messages"][0]["content"] == [{"type": "image", "source": source}]

    async def test_parts_of_other_kinds_go_as_they_are_and_empty_texts_not_at_all(self, ask, canned):
        document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
        cached = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
        body = await self.sent(ask, canned, UserMessage(content=[document, cached, {"type": "text", "text": ""}]))
        assert body["messages"][0]["content"] == [document, cached]

    async def test_audio_is_a_word_and_a_warning(self, ask, canned, caplog):
        audio = {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}}
        for _ in range(2):
            body = await self.sent(ask, canned, UserMessage(content=[audio]))
        assert body["messages"][0]["content"] == [{"type": "text", "text": "[audio]"}]
        assert caplog.text.count("has no audio") == 1

    async def test_a_turn_without_anything_in_it_is_left_out(self, ask, canned):
        body = await self.sent(ask, canned, *ASKED, AssistantMessage(content=None), *ASKED)
        assert [one["role"] for one in body["messages"]] == ["user", "user"]

    async def test_thinking_is_sent_back_where_it_is_whole(self, ask, canned):
        withheld = {"type": "thinking", "thinking": "", "signature": "s3"}
        blocks = [THOUGHT, HIDDEN, withheld, {"type": "thinking", "thinking": "no signature"}]
        said = AssistantMessage(content="4", reasoning_content="hm", thinking_blocks=blocks)
        body = await self.sent(ask, canned, said)
        assert body["messages"][0]["content"] == [THOUGHT, HIDDEN, withheld, text("4")]

    async def test_tools(self, ask, canned):
        tool = Tool(name="add", description="adds", parameters={"type": "object"}, strict=True)
        body = await self.sent(ask, canned, tools=[tool])
        assert body["tools"] == [{"name": "add", "description": "adds", "input_schema": {"type": "object"}}]


class TestSamplingArgs:
    async def sent(self, ask, canned, **sampling_args):
        await ask(sampling_args=sampling_args)
        return {name: value for name, value in canned.requests[-1][2].items() if name not in {"model", "messages"}}

    async def test_4096_tokens_unless_it_is_said_with_one_warning(self, ask, canned, caplog):
        for _ in range(2):
            assert await self.sent(ask, canned, max_tokens=None) == {"max_tokens": 4096}
        assert caplog.text.count("4096 is used") == 1

    @pytest.mark.parametrize(
        ("stop", "sequences"),
        [("END", ["END"]), (["A", "B"], ["A", "B"]), (["\n", "A"], ["A"]), ("\n", None), ("", None)],
    )
    async def test_stop_sequences(self, ask, canned, stop, sequences):
        assert (await self.sent(ask, canned, stop=stop)).get("stop_sequences") == sequences

    async def test_there_is_one_answer_whatever_n_is(self, ask, canned):
        assert await self.sent(ask, canned, n=3) == {"max_tokens": 9}

    async def test_what_the_sdk_has_and_what_it_has_not(self, ask, canned):
        arguments = {"thinking": {"type": "enabled", "budget_tokens": 5}, "temperature": 0.5, "top_k": 3}
        assert await self.sent(ask, canned, **arguments) == {"max_tokens": 9, **arguments}


class TestAnswers:
    async def test_text_thinking_and_calls(self, ask):
        response = await ask(message(THOUGHT, HIDDEN, text("I "), text("add."), CALL, stop_reason="tool_use"))
        said = response.message
        assert (response.id, response.model, said.content, said.reasoning_content) == ("m1", "served", "I add.", "hm")
        assert said.thinking_blocks == [THOUGHT, HIDDEN]
        assert said.tool_calls == [ToolCall(id="t1", name="add", arguments='{"a":1}')]
        assert (said.finish_reason, said.get("anthropic_content")) == ("tool_calls", None)

    @pytest.mark.parametrize(
        ("reason", "finish_reason", "is_truncated"),
        [
            ("end_turn", "stop", False),
            ("stop_sequence", "stop", False),
            ("max_tokens", "length", True),
            ("model_context_window_exceeded", "length", True),
            ("refusal", None, False),
            ("pause_turn", None, False),
            (None, None, False),
        ],
    )
    async def test_how_it_ended(self, ask, reason, finish_reason, is_truncated):
        said = (await ask(message(text("4"), stop_reason=reason))).message
        assert (said.finish_reason, said.is_truncated) == (finish_reason, is_truncated)

    async def test_tokens_from_and_to_the_cache_are_part_of_the_prompt(self, ask):
        usage = {
            "input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100,
            "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3},
        }  # fmt: skip
        found = (await ask(message(text("4"), usage=usage))).usage
        assert (found.prompt_tokens, found.completion_tokens, found.total_tokens) == (125, 7, 132)
        assert found.reasoning_tokens == 3

    async def test_no_usage(self, ask):
        body = message(text("4"))
        del body["usage"]
        assert (await ask(body)).usage is None

    @pytest.mark.parametrize(
        "blocks",
        [
            [THOUGHT, text("I"), CALL, {**THOUGHT, "signature": "s2"}, {**CALL, "id": "t2"}],
            [{"type": "server_tool_use", "id": "w1", "name": "web_search", "input": {}}, text("found")],
            [{"type": "something_new", "value": 1}, text("hello")],
        ],
        ids=["thinking in between", "a tool of the server", "of an unknown kind"],
    )
    async def test_what_the_usual_fields_do_not_hold_is_sent_back_as_it_came(self, ask, canned, blocks):
        said = (await ask(message(*blocks))).message
        await ask(prompt=[*ASKED, said])
        assert canned.requests[-1][2]["messages"][1]["content"] == blocks

    async def test_but_not_where_the_environment_has_changed_it(self, ask, canned):
        said = (await ask(message(text("I"), THOUGHT, text("add")))).message
        said.content = "I do"
        await ask(prompt=[*ASKED, said])
        assert canned.requests[-1][2]["messages"][1]["content"] == [THOUGHT, text("I do")]


class TestUnusableAnswers:
    async def test_nothing_of_a_kind_that_is_known(self, ask):
        with pytest.raises(InvalidModelResponseError, match="expected text, thinking or a tool call, found hologram"):
            await ask(message({"type": "hologram", "data": "4"}))

    @pytest.mark.parametrize("blocks", [[], [text("")]], ids=["no blocks", "no text"])
    async def test_nothing_at_all(self, ask, blocks):
        with pytest.raises(EmptyModelResponseError, match="no text, thinking or tool call"):
            await ask(message(*blocks))

    @pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
    async def test_nothing_on_purpose_is_an_answer(self, ask, reason):
        assert (await ask(message(stop_reason=reason))).message.content == ""

    @pytest.mark.parametrize("body", [b"", b"<html>", [1], {"type": "error", "error": {"message": "overloaded"}}])
    async def test_another_shape_than_the_protocol_s(self, ask, body):
        with pytest.raises(InvalidModelResponseError, match=r"expected|not the JSON that the protocol promises"):
            await ask(body)

    async def test_a_call_without_a_name(self, ask):
        with pytest.raises(InvalidModelResponseError, match="another shape"):
            await ask(message({**CALL, "name": None}))


class TestTransport:
    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 529])
    async def test_errors_are_those_of_the_sdk(self, canned, client, status):
        error = {"type": "error", "error": {"type": "t", "message": "no luck"}}
        canned.reply(error, status, request_id="r1", retry_after="7")
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "2+2?"}]}
        async with anthropic.AsyncAnthropic(
            base_url=canned.url.removesuffix("/v1"), api_key=KEY, max_retries=0
        ) as plain:  # fmt: skip
            facts = []
            for one in (client.client, plain):
                with pytest.raises(anthropic.AnthropicError) as caught:
                    await one.messages.create(**asked)
                found = caught.value
                facts.append((type(found), found.status_code, found.message, found.body, found.request_id))
        assert facts[0] == facts[1]
        (_, mine, sent), (_, theirs, sent_by_sdk) = canned.requests
        names = ("Authorization", "X-Api-Key", "anthropic-version", "Content-Type")
        assert [mine.get(name) for name in names] == [theirs.get(name) for name in names]
        assert sent == sent_by_sdk == asked

    @pytest.mark.parametrize("status", [401, 400, 500])
    async def test_a_key_that_the_server_echoes_is_hidden(self, ask, status):
        with pytest.raises((ModelError, anthropic.AuthenticationError)) as caught:
            await ask({"error": {"message": f"invalid x-api-key: {KEY}"}}, status)
        error = caught.value.__cause__ or caught.value
        assert (KEY in f"{caught.value} {error} {error.body} {error.response.text}", "[API key]" in str(error)) == (
            False,
            True,
        )

    async def test_raw_responses_and_other_options_come_from_the_sdk(self, canned, client):
        canned.reply(message(text("4")), request_id="r1")
        raw = await client.client.messages.with_raw_response.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "2+2?"}]
        )
        assert (raw.headers["request-id"], (await raw.parse()).content[0].text) == ("r1", "4")
        async with client.client.with_options(timeout=3.0) as changed:
            await changed.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "2+2?"}])
        assert (changed.timeout, canned.requests[-1][0]) == (3.0, "/v1/messages")
