"""Messages: pydantic models that read like dicts, made of whatever environments write."""

import pytest

from nightjar.core.messages import (
    AssistantMessage,
    SystemMessage,
    TextMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    concat_messages,
    content_text,
    dump_message,
    dump_messages,
    from_raw_message,
    normalize_messages,
)
from nightjar.errors import ConfigError

NESTED_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
FLAT_CALL = {"id": "c1", "name": "add", "arguments": '{"a": 1}'}
TEXT, IMAGE = {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}


def test_fields_of_a_message_are_read_and_set_by_key_and_a_missing_key_is_an_error_or_the_default():
    message = UserMessage(content="hi", name="Ann")
    message["content"] = "ho"
    assert (message["content"], message["name"], message.content) == ("ho", "Ann", "ho")
    assert set(message.keys()) == {"role", "content", "name"}
    with pytest.raises(KeyError, match="colour"):
        UserMessage(content="hi")["colour"]
    assert UserMessage(content="hi").get("colour", "red") == "red"


def test_a_message_contains_its_fields_and_no_methods():
    expected = {"content": True, "name": True, "colour": False, 3: False, "model_dump": False}
    assert {key: key in UserMessage(content="hi", name="Ann") for key in expected} == expected


def test_the_role_of_a_raw_message_decides_the_class():
    kinds = {"system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage}
    for role, kind in kinds.items():
        assert from_raw_message({"role": role, "content": "x"}) == kind(content="x")


@pytest.mark.parametrize("call", [NESTED_CALL, FLAT_CALL], ids=["nested as OpenAI does", "flat"])
def test_raw_tool_calls_become_flat_and_the_dict_is_not_changed(call):
    raw = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert from_raw_message(raw).tool_calls == [ToolCall(**FLAT_CALL)]
    assert raw == {"role": "assistant", "content": None, "tool_calls": [call]}


def test_content_parts_are_passed_on_also_unknown_ones():
    for parts in ([TEXT, IMAGE], [{"type": "video", "video": {"url": "v"}}]):
        message = from_raw_message({"role": "user", "content": parts})
        assert dump_message(message) == {"role": "user", "content": parts}


def test_an_invalid_message_is_shown_in_the_error():
    for raw, named in [
        ({"role": "robot", "content": "x"}, r"\{'role': 'robot'"),
        ({"role": "user"}, r"user\.content"),
        ({"role": "assistant", "tool_calls": [{**NESTED_CALL, "id": None}]}, r"tool_calls\.0\.id"),
    ]:
        with pytest.raises(ConfigError, match=named):
            from_raw_message(raw)


def test_texts_dicts_and_messages_become_messages_without_a_copy():
    message = UserMessage(content="hi")
    assert normalize_messages("hi") == [TextMessage(content="hi")]
    tool, same = normalize_messages([{"role": "tool", "tool_call_id": "c", "content": "3"}, message])
    assert tool == ToolMessage(tool_call_id="c", content="3")
    assert same is message
    for value, named in ((3, "few_shot .* 3"), (["hi"], "'hi'")):
        with pytest.raises(ConfigError, match=named):
            normalize_messages(value, field_name="few_shot")


def test_texts_and_lists_are_concatenated():
    joined = concat_messages(["a", [{"role": "assistant", "content": "b"}], []])
    assert joined == [TextMessage(content="a"), AssistantMessage(content="b")]


def test_the_text_of_a_content_joins_its_text_parts():
    contents = ["hi", None, [TEXT, IMAGE, {"type": "text", "text": "b"}], UserMessage(content=[TEXT]).content]
    assert [content_text(content) for content in contents] == ["hi", "", "a b", "a"]


def test_unset_fields_are_left_out_and_dumped_messages_are_read_back_equal():
    for message in (AssistantMessage(content="x"), {"role": "assistant", "content": "x"}):
        assert dump_message(message) == {"role": "assistant", "content": "x"}
    for value in (None, "plain text"):
        assert dump_messages(value) == value
    messages = [
        SystemMessage(content="s"),
        UserMessage(content=[TEXT]),
        AssistantMessage(content=None, reasoning_content="hm", tool_calls=[ToolCall(**FLAT_CALL)]),
        ToolMessage(tool_call_id="c", content="3"),
    ]
    assert normalize_messages(dump_messages(messages)) == messages
