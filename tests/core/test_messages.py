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


class TestReadingLikeADict:
    def test_field_by_key(self):
        assert UserMessage(content="hi")["content"] == "hi"

    def test_unknown_field_is_kept(self):
        assert UserMessage(content="hi", name="Ann")["name"] == "Ann"

    def test_missing_key_raises_key_error(self):
        with pytest.raises(KeyError, match="colour"):
            UserMessage(content="hi")["colour"]

    def test_get_of_a_missing_key_gives_the_default(self):
        assert UserMessage(content="hi").get("colour", "red") == "red"

    def test_setting_by_key(self):
        message = UserMessage(content="hi")
        message["content"] = "ho"
        assert message.content == "ho"

    def test_contains_fields_and_unknown_fields_and_nothing_else(self):
        message = UserMessage(content="hi", name="Ann")
        assert ["content" in message, "name" in message, "colour" in message, 3 in message] == [
            True,
            True,
            False,
            False,
        ]

    def test_keys_list_all_fields(self):
        assert set(UserMessage(content="hi", name="Ann").keys()) == {"role", "content", "name"}

    def test_methods_are_not_keys(self):
        assert "model_dump" not in UserMessage(content="hi")


class TestFromRawMessage:
    @pytest.mark.parametrize(
        ("role", "kind"), [("system", SystemMessage), ("user", UserMessage), ("assistant", AssistantMessage)]
    )
    def test_role_decides_the_class(self, role, kind):
        assert from_raw_message({"role": role, "content": "x"}) == kind(content="x")

    def test_tool_calls_nested_as_openai_nests_them_become_flat(self):
        message = from_raw_message({"role": "assistant", "content": None, "tool_calls": [NESTED_CALL]})
        assert message.tool_calls == [ToolCall(id="c1", name="add", arguments='{"a": 1}')]

    def test_flat_tool_calls_stay(self):
        flat = {"id": "c1", "name": "add", "arguments": "{}"}
        assert from_raw_message({"role": "assistant", "tool_calls": [flat]}).tool_calls == [ToolCall(**flat)]

    def test_the_dict_is_not_changed(self):
        raw = {"role": "assistant", "content": None, "tool_calls": [NESTED_CALL]}
        from_raw_message(raw)
        assert raw == {"role": "assistant", "content": None, "tool_calls": [NESTED_CALL]}

    def test_content_of_several_parts(self):
        parts = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
        message = from_raw_message({"role": "user", "content": parts})
        assert dump_message(message) == {"role": "user", "content": parts}

    def test_part_of_an_unknown_kind_is_passed_on(self):
        parts = [{"type": "video", "video": {"url": "v"}}]
        assert dump_message(from_raw_message({"role": "user", "content": parts}))["content"] == parts

    def test_unknown_role_is_an_error_that_shows_the_message(self):
        with pytest.raises(ConfigError, match=r"Not a chat message: \{'role': 'robot'"):
            from_raw_message({"role": "robot", "content": "x"})

    def test_missing_content_is_named(self):
        with pytest.raises(ConfigError, match=r"user\.content: Field required"):
            from_raw_message({"role": "user"})

    def test_tool_call_without_an_id_is_a_config_error(self):
        call = {"type": "function", "function": {"name": "add", "arguments": "{}"}}
        with pytest.raises(ConfigError, match=r"tool_calls\.0\.id: Input should be a valid string"):
            from_raw_message({"role": "assistant", "tool_calls": [call]})


class TestNormalizeMessages:
    def test_text_becomes_one_text_message(self):
        assert normalize_messages("hi") == [TextMessage(content="hi")]

    def test_messages_are_taken_over_not_copied(self):
        message = UserMessage(content="hi")
        assert normalize_messages([message])[0] is message

    def test_dicts_become_messages(self):
        assert normalize_messages([{"role": "tool", "tool_call_id": "c", "content": "3"}]) == [
            ToolMessage(tool_call_id="c", content="3")
        ]

    def test_neither_text_nor_list_is_an_error_that_names_the_field(self):
        with pytest.raises(ConfigError, match="few_shot must be a text or a list of messages, found 3"):
            normalize_messages(3, field_name="few_shot")

    def test_a_text_inside_the_list_is_an_error(self):
        with pytest.raises(ConfigError, match="Not a chat message: 'hi'"):
            normalize_messages(["hi"])

    def test_concatenation_of_texts_and_lists(self):
        assert concat_messages(["a", [{"role": "assistant", "content": "b"}], []]) == [
            TextMessage(content="a"),
            AssistantMessage(content="b"),
        ]


class TestContentText:
    def test_text_is_itself(self):
        assert content_text("hi") == "hi"

    def test_no_content_is_empty(self):
        assert content_text(None) == ""

    def test_texts_of_parts_are_joined_by_a_space(self):
        parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]
        assert content_text([*parts, {"type": "text", "text": "b"}]) == "a b"

    def test_parts_that_are_messages_parts_are_read_too(self):
        assert (
            content_text(from_raw_message({"role": "user", "content": [{"type": "text", "text": "a"}]}).content) == "a"
        )


class TestDump:
    def test_fields_that_are_not_set_are_left_out(self):
        assert dump_message(AssistantMessage(content="x")) == {"role": "assistant", "content": "x"}

    def test_dicts_stay(self):
        assert dump_message({"role": "user", "content": "x"}) == {"role": "user", "content": "x"}

    @pytest.mark.parametrize("value", [None, "plain text"])
    def test_none_and_text_stay(self, value):
        assert dump_messages(value) == value

    def test_what_is_dumped_is_read_back_equal(self):
        messages = [
            SystemMessage(content="s"),
            UserMessage(content=[{"type": "text", "text": "q"}]),
            AssistantMessage(
                content=None, reasoning_content="hm", tool_calls=[ToolCall(id="c", name="f", arguments="{}")]
            ),
            ToolMessage(tool_call_id="c", content="3"),
        ]
        assert normalize_messages(dump_messages(messages)) == messages
