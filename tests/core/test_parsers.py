"""Parsers: the answer in a completion."""

from types import SimpleNamespace

import pytest

from nightjar.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from nightjar.environments.parsers import Parser, extract_boxed_answer, extract_hash_answer, strip_non_numeric

COMPLETION = [
    AssistantMessage(content="first"), ToolMessage(tool_call_id="c", content="3"), UserMessage(content="go on"),
    SystemMessage(content="be brief"), AssistantMessage(content="second"), UserMessage(content="thanks"),
]  # fmt: skip


class TestExtracting:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            (r"so \boxed{42}.", "42"), (r"\boxed{1} no, \boxed{2}", "2"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
            (r"\boxed{{a}{b{c}}} and {d}", "{a}{b{c}}"), (r"\boxed{}", ""), ("\\boxed{7\n}", "7\n"),
        ],
    )  # fmt: skip
    def test_last_box_with_balanced_braces(self, text, answer):
        assert extract_boxed_answer(text) == answer

    @pytest.mark.parametrize("text", ["no box", r"open \boxed{42", r"\boxed 42", ""])
    def test_without_a_closed_box_it_is_the_text_itself_or_empty(self, text):
        assert (extract_boxed_answer(text), extract_boxed_answer(text, strict=True)) == (text, "")

    @pytest.mark.parametrize(
        ("text", "answer"), [("6 * 7\n#### 42", "42"), ("#### 1\n#### 2 ", "2"), ("####", ""), ("none", None)]
    )
    def test_what_stands_after_the_last_hashes(self, text, answer):
        assert extract_hash_answer(text) == answer

    def test_digits_and_points_are_kept(self):
        assert strip_non_numeric(r"$1{,}234.50^\circ$") == "1234.50"


class TestParser:
    @pytest.mark.parametrize(
        ("completion", "answer"),
        [
            (COMPLETION, "SECOND"), ("yes", "YES"), ([UserMessage(content="hi")], None),
            ([AssistantMessage(content=None)], ""),
            ([AssistantMessage(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])], "A B"),
            ([{"role": "assistant", "content": "x"}], "X"), ([SimpleNamespace(role="assistant", content="x")], "X"),
        ],
    )  # fmt: skip
    def test_the_text_of_the_last_assistant_message_is_parsed(self, completion, answer):
        assert Parser(str.upper).parse_answer(completion) == answer
        assert Parser().parse_answer("yes") == "yes"

    @pytest.mark.parametrize(
        ("role", "contents"),
        [("assistant", ["first", "second"]), ("user", ["go on", "thanks"]), ("tool", ["3"]), ("system", ["be brief"])],
    )
    def test_messages_by_role(self, role, contents):
        found = getattr(Parser(), f"get_{role}_messages")(COMPLETION)
        assert [message.content for message in found] == contents

    def test_plain_text_is_always_in_format(self):
        score = Parser().get_format_reward_func()
        assert (score(completion=[]), score.__name__) == (1.0, "format_reward_func")
