"""Parsers: the answer in a completion."""

import pytest

from nightjar.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from nightjar.environments.parsers import Parser, extract_boxed_answer, extract_hash_answer, strip_non_numeric

COMPLETION = [
    AssistantMessage(content="first"),
    ToolMessage(tool_call_id="c", content="3"),
    UserMessage(content="go on"),
    SystemMessage(content="be brief"),
    AssistantMessage(content="second"),
    UserMessage(content="thanks"),
]


class TestBoxed:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            (r"so \boxed{42}.", "42"),
            (r"\boxed{1} no, \boxed{2}", "2"),
            (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
            (r"\boxed{{a}{b{c}}} and {d}", "{a}{b{c}}"),
            (r"\boxed{}", ""),
            ("\\boxed{7\n}", "7\n"),
        ],
    )
    def test_last_box_with_balanced_braces(self, text, answer):
        assert extract_boxed_answer(text) == answer

    @pytest.mark.parametrize("text", ["no box", r"open \boxed{42", r"\boxed 42", ""])
    def test_without_a_closed_box_the_text_itself(self, text):
        assert extract_boxed_answer(text) == text

    @pytest.mark.parametrize("text", ["no box", r"open \boxed{42", r"\boxed 42", ""])
    def test_strict_without_a_closed_box_is_empty(self, text):
        assert extract_boxed_answer(text, strict=True) == ""


class TestHash:
    @pytest.mark.parametrize(
        ("text", "answer"), [("6 * 7\n#### 42", "42"), ("#### 1\n#### 2 ", "2"), ("####", ""), ("none", None)]
    )
    def test_what_stands_after_the_last_marker(self, text, answer):
        assert extract_hash_answer(text) == answer


class TestNumeric:
    def test_digits_and_points_are_kept(self):
        assert strip_non_numeric(r"$1{,}234.50^\circ$") == "1234.50"


class TestParser:
    def test_the_last_assistant_message_counts(self):
        assert Parser(str.upper).parse_answer(COMPLETION) == "SECOND"

    def test_a_text_is_parsed_itself(self):
        assert Parser(str.upper).parse_answer("yes") == "YES"

    def test_without_an_extract_function_it_is_the_text(self):
        assert Parser().parse_answer("yes") == "yes"

    def test_no_assistant_message_has_no_answer(self):
        assert Parser().parse_answer([UserMessage(content="hi")]) is None

    def test_no_content_is_an_empty_text(self):
        assert Parser().parse_answer([AssistantMessage(content=None)]) == ""

    def test_text_parts_are_joined_by_a_space(self):
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        assert Parser().parse_answer([AssistantMessage(content=parts)]) == "a b"

    def test_messages_may_be_dicts(self):
        assert Parser().parse_answer([{"role": "assistant", "content": "x"}]) == "x"

    def test_messages_may_be_other_objects(self):
        class Said:
            role, content = "assistant", "x"

        assert Parser().parse_answer([Said()]) == "x"

    @pytest.mark.parametrize(
        ("role", "contents"),
        [
            ("assistant", ["first", "second"]),
            ("user", ["go on", "thanks"]),
            ("tool", ["3"]),
            ("system", ["be brief"]),
        ],
    )
    def test_messages_by_role(self, role, contents):
        found = getattr(Parser(), f"get_{role}_messages")(COMPLETION)
        assert [message.content for message in found] == contents

    def test_plain_text_is_always_in_format(self):
        score = Parser().get_format_reward_func()
        assert (score(completion=[]), score.__name__) == (1.0, "format_reward_func")
