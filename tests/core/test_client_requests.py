"""What the client of each protocol sends: prompts, tools and arguments in the protocol's own form."""

import contextlib

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
)  # fmt: skip
from nightjar.errors import ConfigError, ModelError

ANSWERS = {
    "openai_chat_completions": {"choices": [{"finish_reason": "stop", "message": {"content": "4"}}]},
    "openai_completions": {"choices": [{"finish_reason": "stop", "text": "4"}]},
    "openai_responses": {"output": [{"type": "message", "content": [{"type": "output_text", "text": "4"}]}]},
    "anthropic_messages": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "4"}]},
}
CHAT, TEXT, RESPONSES, MESSAGES = ANSWERS
PATHS = {CHAT: "/v1/chat/completions", TEXT: "/v1/completions", RESPONSES: "/v1/responses", MESSAGES: "/v1/messages"}
ASKED = UserMessage(content="2+2?")
PLAIN = {"role": "user", "content": "2+2?"}
AUDIO = UserMessage(content=[{"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}}])
FUNCTION = {"name": "add", "arguments": "{}"}


@pytest.fixture
async def sent(canned):
    """Asks in a protocol, and returns the body that the server got."""
    async with contextlib.AsyncExitStack() as clients:
        made = {}

        async def ask(protocol, *prompt, tools=None, **sampling_args):
            canned.reply(ANSWERS[protocol])
            if protocol not in made:
                config = ClientConfig(api_base_url=canned.url, client_type=protocol, max_retries=0)
                made[protocol] = await clients.enter_async_context(resolve_client(config))
            await made[protocol].get_response(list(prompt) or [ASKED], "m", sampling_args, tools)
            path, _, body = canned.requests[-1]
            assert (path, body.pop("model")) == (PATHS[protocol], "m")
            return body

        yield ask


def text(said):
    return {"type": "text", "text": said}


def user(*parts):
    return UserMessage(content=list(parts))


def image(url, **fields):
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def calls(*names, arguments="{}", **fields):
    return AssistantMessage(tool_calls=[ToolCall(id=name, name="add", arguments=arguments) for name in names], **fields)


def result(name, content="4"):
    return ToolMessage(tool_call_id=name, content=content)


async def test_a_prompt_has_the_form_of_chat_completions(sent):
    parts = [text("Which?"), image("data:image/png;base64,YQ==", detail="low"), {"type": "new", "value": [1, {"a": 2}]}]
    prompt = [
        SystemMessage(content="s"), TextMessage(content="2+2="), user(*parts), UserMessage(content="2+2?", name="ann"),
        calls("c1", thinking_blocks=[{"type": "thinking"}]), result("c1"),
        AssistantMessage(content="4", reasoning_content="hm", openai_responses_output=[{"type": "reasoning"}]),
    ]  # fmt: skip
    assert (await sent(CHAT, *prompt))["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "2+2="},
        {"role": "user", "content": parts},
        {**PLAIN, "name": "ann"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "4", "reasoning_content": "hm"},
    ]
    prompt = [SystemMessage(content="s"), user(text("one"), text("two")), AssistantMessage(content=None), ASKED]
    assert (await sent(TEXT, *prompt))["prompt"] == "s\n\none two\n\n\n\n2+2?"


async def test_a_prompt_has_the_form_of_responses(sent):
    def item(role, content):
        return {"type": "message", "role": role, "content": content}

    parts = [text("Which?"), image("https://x/y.png", detail="low"), {"type": "input_file", "file_id": "f1"}]
    shown = {"type": "input_image", "image_url": "https://x/y.png"}
    prompt = [
        SystemMessage(content="s"), ASKED, TextMessage(content="t"), user(*parts),
        calls("c1", content=[text("I add.")]), result("c1", [text("a"), text("b")]),
        result("c2", [image("https://x/y.png")]),
    ]  # fmt: skip
    body = await sent(RESPONSES, *prompt)
    assert body["input"] == [
        item("system", "s"),
        item("user", "2+2?"),
        item("user", "t"),
        item("user", [{"type": "input_text", "text": "Which?"}, {**shown, "detail": "low"}, parts[2]]),
        item("assistant", "I add."),
        {"type": "function_call", "call_id": "c1", **FUNCTION},
        {"type": "function_call_output", "call_id": "c1", "output": "a b"},
        {"type": "function_call_output", "call_id": "c2", "output": [{**shown, "detail": "auto"}]},
    ]


async def test_a_prompt_has_the_form_of_anthropic_s_messages(sent):
    def used(*names, **given):
        blocks = [{"type": "tool_use", "id": name, "name": "add", "input": given} for name in names]
        return {"role": "assistant", "content": blocks}

    def results(**contents):
        blocks = [{"type": "tool_result", "tool_use_id": name, "content": said} for name, said in contents.items()]
        return {"role": "user", "content": blocks}

    def shown(**source):
        return {"type": "image", "source": source}

    thoughts = [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "redacted_thinking", "data": "x1"},
        {"type": "thinking", "thinking": "", "signature": "s3"},
    ]
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    cached = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    urls = ("https://x/y.png", "data:image/gif;base64,YQ==", "data:;base64,YQ==", "data:image/svg+xml,%3Csvg")
    broken = ('{"a": ', "[1]", '"text"', "[" * 100_000)
    prompt = [
        SystemMessage(content="a"), ASKED, SystemMessage(content=[text("b"), image("https://x/y.png")]),
        calls("t1", "t2", arguments=""), result("t1", "1"), result("t2", "2"), ASKED,
        *[calls("t1"), result("t1")] * 2, *(calls("t1", arguments=arguments) for arguments in broken),
        user(*map(image, urls)), user(document, cached, text("")), AssistantMessage(content=None), ASKED,
        AssistantMessage(
            content="4", reasoning_content="hm",
            thinking_blocks=[*thoughts, {"type": "thinking", "thinking": "no signature"}],
        ),
    ]  # fmt: skip
    body = await sent(MESSAGES, *prompt, max_tokens=9)
    assert (body["system"], body["max_tokens"]) == ("a\n\nb [image]", 9)
    images = [
        shown(type="url", url="https://x/y.png"),
        shown(type="base64", media_type="image/gif", data="YQ=="),
        shown(type="base64", media_type="image/png", data="YQ=="),
        shown(type="base64", media_type="image/svg+xml", data="PHN2Zw=="),
    ]
    assert body["messages"] == [
        PLAIN, used("t1", "t2"), results(t1="1", t2="2"), PLAIN,
        *[used("t1"), results(t1="4")] * 2, *(used("t1", INVALID_JSON=arguments) for arguments in broken),
        {"role": "user", "content": images}, {"role": "user", "content": [document, cached]}, PLAIN,
        {"role": "assistant", "content": [*thoughts, text("4")]},
    ]  # fmt: skip


ADD = {"name": "add", "description": "adds"}
SUB = {"name": "sub", "description": ""}


async def test_tools_and_a_message_that_is_changed_later_are_sent_in_the_protocol_s_form(sent):
    for protocol, expected in (
        (CHAT, [
            {"type": "function", "function": {**ADD, "parameters": {"type": "object"}}},
            {"type": "function", "function": {**SUB, "parameters": {}, "strict": True}},
        ]),
        (RESPONSES, [
            {"type": "function", **ADD, "parameters": {"type": "object"}},
            {"type": "function", **SUB, "parameters": {}, "strict": True},
        ]),
        (MESSAGES, [{**ADD, "input_schema": {"type": "object"}}, {**SUB, "input_schema": {}}]),
    ):  # fmt: skip
        tools = [Tool(**ADD, parameters={"type": "object"}), Tool(**SUB, parameters={}, strict=True)]
        assert (await sent(protocol, tools=tools, max_tokens=9))["tools"] == expected
    message = UserMessage(content="2+2?")
    await sent(CHAT, message)
    message["content"] = "3+3?"
    assert (await sent(CHAT, message))["messages"] == [{"role": "user", "content": "3+3?"}]


async def test_arguments_have_the_protocol_s_names_and_form(sent):
    chosen = {"type": "function", "function": {"name": "add"}}
    schema = {"name": "sum", "schema": {"type": "object"}}
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 5}, "temperature": 0.5, "top_k": 3}
    one_call = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    for protocol, given, expected in (
        (CHAT, {}, {}),
        (CHAT, {"tool_choice": chosen}, {"tool_choice": chosen}),
        (TEXT, {"max_tokens": 9, "stop": ["\n"]}, {"max_tokens": 9, "stop": ["\n"]}),
        (RESPONSES, {"max_output_tokens": 1, "max_tokens": 2, "max_completion_tokens": 3}, {"max_output_tokens": 1}),
        (
            RESPONSES,
            {"reasoning_effort": "low", "reasoning": {"summary": "auto"}},
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (RESPONSES, {"n": 1, "stop": [], "modalities": ["text"]}, {}),
        (RESPONSES, {"tool_choice": chosen}, {"tool_choice": {"type": "function", "name": "add"}}),
        (RESPONSES, {"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            RESPONSES,
            {"response_format": {"type": "json_schema", "json_schema": schema}},
            {"text": {"format": {"type": "json_schema", **schema}}},
        ),
        (RESPONSES, {"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}),
        (MESSAGES, {"n": 3}, {}),
        (MESSAGES, thinking, thinking),
        *(
            (MESSAGES, {"stop": stop}, {"stop_sequences": sequences})
            for stop, sequences in (("END", ["END"]), (["A", "B"], ["A", "B"]), (["\n", "A"], ["A"]))
        ),
        *((MESSAGES, {"stop": stop}, {}) for stop in ("\n", "")),
        (MESSAGES, {"tool_choice": chosen}, {"tool_choice": {"type": "tool", "name": "add"}}),
        (MESSAGES, {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        (MESSAGES, {"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
        (MESSAGES, {"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "any"}}),
        (MESSAGES, {"parallel_tool_calls": False}, one_call),
        (MESSAGES, {"parallel_tool_calls": True}, {}),
    ):
        limit = {"max_tokens": 9} if protocol == MESSAGES else {}
        tools = None if protocol == TEXT else [Tool(**ADD, parameters={"type": "object"})]
        body = await sent(protocol, tools=tools, **limit, **given)
        arguments = {name: body[name] for name in body if name not in {"messages", "prompt", "input", "tools"}}
        assert arguments == {**limit, **expected}, given


async def test_audio_and_anthropic_s_required_limit_are_sent_with_one_warning_each(sent, caplog):
    for _ in range(2):
        assert (await sent(MESSAGES, max_tokens=None))["max_tokens"] == 4096
    assert caplog.text.count("4096") == 1
    assert (await sent(CHAT, AUDIO))["modalities"] == ["text"]
    assert (await sent(CHAT, AUDIO, modalities=["text", "audio"]))["modalities"] == ["text", "audio"]
    for _ in range(2):
        body = await sent(MESSAGES, AUDIO, max_tokens=9)
    assert body["messages"][0]["content"] == [text("[audio]")]
    assert ["audio" in record.message for record in caplog.records] == [False, True]


async def test_what_the_protocol_does_not_have_is_refused_before_it_is_sent(sent, canned):
    for protocol, prompt, given, says in (
        (RESPONSES, AUDIO, {}, "audio"),
        (RESPONSES, ASKED, {"n": 2}, "'n'"),
        (RESPONSES, ASKED, {"stop": ["END"]}, "'stop'"),
        (TEXT, user(image("https://x/y.png")), {}, "'image_url'"),
        (TEXT, ASKED, {"tools": [Tool(**ADD, parameters={})]}, "'add'"),
    ):
        with pytest.raises(ModelError, match=says) as caught:
            await sent(protocol, prompt, **given)
        assert isinstance(caught.value.__cause__ or caught.value, ConfigError)
    assert canned.requests == []
    async with resolve_client(ClientConfig(api_base_url=canned.url, client_type=TEXT)) as client:
        with pytest.raises(ConfigError, match="tools"):
            await client.get_native_response("2+2=", "m", {}, [None])
