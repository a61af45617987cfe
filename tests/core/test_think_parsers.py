"""ThinkParser, MaybeThinkParser and AfterThink…: the answer after the thoughts."""

import pytest

from nightjar.core.messages import AssistantMessage, UserMessage
from nightjar.environments.parsers import (
    AfterThinkParser,
    AfterThinkXMLParser,
    MaybeThinkParser,
    ThinkParser,
    extract_boxed_answer,
)


class TestThinkParser:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("<think>hm</think>\n 4 \n", "4"), ("<think>a</think> 1 <think>b</think> 2", "2"), ("hm</think>4", "4"),
            ("<think>hm</think>", ""), ("4", ""), ("<think>4", ""),
        ],
    )  # fmt: skip
    def test_what_stands_after_the_last_thought(self, text, answer):
        assert ThinkParser().parse(text) == answer

    def test_the_extract_function_sees_no_thoughts(self):
        text = r"<think>\boxed{3}</think> It is \boxed{4}."
        assert ThinkParser(extract_boxed_answer).parse_answer([AssistantMessage(content=text)]) == "4"

    def test_it_says_for_which_models_it_is_not(self, caplog):
        ThinkParser()
        assert "use MaybeThinkParser" in caplog.text

    @pytest.mark.parametrize(
        ("text", "reward"),
        [
            ("<think>hm</think>4", 1.0), ("  <think>hm</think>4", 1.0), ("<think>hm</think>", 0.0),
            ("So <think>hm</think>4", 0.0), ("<think>a</think><think>b</think>4", 0.0), ("<think>hm 4", 0.0),
            ("4", 0.0),
        ],
    )  # fmt: skip
    def test_the_format_is_thoughts_and_then_something(self, text, reward):
        assert ThinkParser().get_format_reward_func()([{"role": "assistant", "content": text}]) == reward

    def test_the_reward_is_the_share_of_the_messages(self):
        said = [AssistantMessage(content=text) for text in ("<think>a</think>b", "c", "<think>d</think>e")]
        assert ThinkParser().get_format_reward_func()([*said, UserMessage(content="f")]) == 2 / 3


class TestMaybeThinkParser:
    @pytest.mark.parametrize(
        ("text", "answer"), [("<think>hm</think> 4", "4"), (" 4 ", "4"), ("<think>4", "<think>4"), ("", "")]
    )
    def test_what_stands_after_the_thoughts_if_there_are_any(self, text, answer):
        assert MaybeThinkParser().parse(text) == answer


class TestAfterThinkParser:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [("<think>hm</think> 4", "4"), (" 4 ", "4"), ("<think>4", ""), ("hm <think>4", "hm <think>4"), ("", "")],
    )
    def test_thoughts_that_never_end_have_no_answer(self, text, answer):
        assert AfterThinkParser().parse(text) == answer

    def test_drafts_of_a_tag_are_not_read(self):
        parser = AfterThinkXMLParser(["answer"])
        assert parser.parse_answer("<think><answer>a</answer></think>In <answer> tags: <answer>b</answer>") == "b"
        assert parser.parse_answer("<think><answer>a</answer>") is None
