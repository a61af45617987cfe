"""Parsers: the answer in a completion, after the thoughts of a model, or between tags."""

import time
from types import SimpleNamespace

import pytest

from nightjar.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from nightjar.environments.parsers import (
    AfterThinkParser,
    AfterThinkXMLParser,
    MaybeThinkParser,
    Parser,
    ThinkParser,
    XMLParser,
    extract_boxed_answer,
    extract_hash_answer,
    strip_non_numeric,
)

COMPLETION = [
    AssistantMessage(content="first"), ToolMessage(tool_call_id="c", content="3"), UserMessage(content="go on"),
    SystemMessage(content="be brief"), AssistantMessage(content="second"), UserMessage(content="thanks"),
]  # fmt: skip


def test_the_last_box_is_read_with_balanced_braces():
    boxes = {
        r"so \boxed{42}.": "42", r"\boxed{1} no, \boxed{2}": "2", r"\boxed{\frac{1}{2}}": r"\frac{1}{2}",
        r"\boxed{{a}{b{c}}} and {d}": "{a}{b{c}}", r"\boxed{}": "", "\\boxed{7\n}": "7\n",
    }  # fmt: skip
    assert {text: extract_boxed_answer(text) for text in boxes} == boxes
    for text in ("no box", r"open \boxed{42", r"\boxed 42", ""):
        assert (extract_boxed_answer(text), extract_boxed_answer(text, strict=True)) == (text, "")


def test_what_stands_after_the_last_hashes_and_digits_and_points_are_read():
    answers = {"6 * 7\n#### 42": "42", "#### 1\n#### 2 ": "2", "####": "", "none": None}
    assert {text: extract_hash_answer(text) for text in answers} == answers
    assert strip_non_numeric(r"$1{,}234.50^\circ$") == "1234.50"


def test_the_text_of_the_last_assistant_message_is_parsed():
    for completion, answer in [
        (COMPLETION, "SECOND"), ("yes", "YES"), ([UserMessage(content="hi")], None),
        ([AssistantMessage(content=None)], ""),
        ([AssistantMessage(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])], "A B"),
        ([{"role": "assistant", "content": "x"}], "X"), ([SimpleNamespace(role="assistant", content="x")], "X"),
    ]:  # fmt: skip
        assert Parser(str.upper).parse_answer(completion) == answer
    assert Parser().parse_answer("yes") == "yes"


def test_messages_are_chosen_by_role():
    contents = {
        "assistant": ["first", "second"], "user": ["go on", "thanks"], "tool": ["3"], "system": ["be brief"],
    }  # fmt: skip
    for role, expected in contents.items():
        found = getattr(Parser(), f"get_{role}_messages")(COMPLETION)
        assert [message.content for message in found] == expected


def test_plain_text_is_always_in_format():
    score = Parser().get_format_reward_func()
    assert (score(completion=[]), score.__name__) == (1.0, "format_reward_func")


def test_what_stands_after_the_thoughts_is_read():
    answers = {
        ThinkParser: {
            "<think>hm</think>\n 4 \n": "4", "<think>a</think> 1 <think>b</think> 2": "2", "hm</think>4": "4",
            "<think>hm</think>": "", "4": "", "<think>4": "",
        },
        MaybeThinkParser: {"<think>hm</think> 4": "4", " 4 ": "4", "<think>4": "<think>4", "": ""},
        AfterThinkParser: {"<think>a</think> 4": "4", " 4 ": "4", "<think>4": "", "hm <think>4": "hm <think>4", "": ""},
    }  # fmt: skip
    found = {parser: {text: parser().parse(text) for text in expected} for parser, expected in answers.items()}
    assert found == answers


def test_the_extract_function_sees_no_thoughts_and_the_parser_says_for_which_models_it_is_not(caplog):
    text = r"<think>\boxed{3}</think> It is \boxed{4}."
    assert ThinkParser(extract_boxed_answer).parse_answer([AssistantMessage(content=text)]) == "4"
    assert "use MaybeThinkParser" in caplog.text


def test_the_format_is_thoughts_and_then_something_in_each_message():
    rewards = {
        "<think>hm</think>4": 1.0, "  <think>hm</think>4": 1.0, "<think>hm</think>": 0.0, "So <think>hm</think>4": 0.0,
        "<think>a</think><think>b</think>4": 0.0, "<think>hm 4": 0.0, "4": 0.0,
    }  # fmt: skip
    score = ThinkParser().get_format_reward_func()
    assert {text: score([{"role": "assistant", "content": text}]) for text in rewards} == rewards
    said = [AssistantMessage(content=text) for text in ("<think>a</think>b", "c", "<think>d</think>e")]
    assert score([*said, UserMessage(content="f")]) == 2 / 3


def test_drafts_of_a_tag_are_not_read():
    parser = AfterThinkXMLParser(["answer"])
    assert parser.parse_answer("<think><answer>a</answer></think>In <answer> tags: <answer>b</answer>") == "b"
    assert parser.parse_answer("<think><answer>a</answer>") is None


FIELDS = ["reasoning", ("code", "answer")]


def test_fields_of_xml_that_cannot_be_are_refused_and_odd_ones_are_warned_of(caplog):
    for fields, error in [(["a", "a"], ValueError), ([()], ValueError), (["a", 1], TypeError), ([("a", 1)], TypeError)]:
        with pytest.raises(error):
            XMLParser(fields)
    parser = XMLParser([])
    assert (parser.get_fields(), parser.parse_answer("<answer>4</answer>")) == ([], None)
    XMLParser(["think", "answer"])
    assert "'think'" in caplog.text


def test_every_tag_is_an_attribute():
    found = {
        "<reasoning>why</reasoning>\n<answer>\n 4 \n</answer>": {"reasoning": "why", "answer": "4"},
        "<code>f()</code>": {"code": "f()"}, "<answer></answer>": {"answer": ""}, "<answer>4": {},
        "<answer>1</answer><answer>2</answer>": {"answer": "1"}, "<answer>1<answer></answer>": {"answer": "1<answer>"},
    }  # fmt: skip
    nothing = {"reasoning": None, "code": None, "answer": None}
    for text, expected in found.items():
        assert vars(XMLParser(FIELDS).parse(text)) == nothing | expected


def test_the_time_to_parse_xml_grows_with_the_text_and_not_with_its_square():
    start = time.process_time()  # which others on this machine do not take
    XMLParser(["answer"]).parse("<answer>" * 50_000 + " " * 500_000, last=True)
    assert time.process_time() - start < 10.0


def test_the_answer_is_the_last_of_a_text_or_of_the_newest_message_that_has_one():
    assert XMLParser(FIELDS).parse_answer("<answer>1</answer><answer>2</answer>") == "2"
    assert XMLParser(FIELDS, answer_field="code").parse_answer("<code>f()</code>") == "f()"
    completion = [
        AssistantMessage(content="<answer>1</answer>"),
        {"role": "assistant", "content": [{"type": "text", "text": "<answer>2</answer>"}]},
        UserMessage(content="<answer>3</answer>"),
        AssistantMessage(content="<reasoning>hm</reasoning>"),
        AssistantMessage(content=None),
    ]
    assert XMLParser(FIELDS).parse_answer(completion) == "2"


def test_the_format_of_xml_is_described_and_written_under_the_first_names():
    form = "<reasoning>\n...\n</reasoning>\n<[ code | answer ]>\n...\n</[ code | answer ]>"
    assert XMLParser(FIELDS).get_format_str() == form
    with pytest.raises(ValueError, match="'code'"):
        XMLParser(FIELDS).format(reasoning="why")
    for name in ("code", "answer"):
        written = XMLParser(FIELDS).format(**{"reasoning": "why", name: 4})
        assert written == "<reasoning>\nwhy\n</reasoning>\n<code>\n4\n</code>"


def test_the_format_reward_of_xml_is_the_mean_of_the_messages():
    rewards = {
        "<reasoning>why</reasoning><answer>4</answer>": 1.0, "  <reasoning>why</reasoning> so <code>f()</code>\n": 1.0,
        "So: <reasoning>why</reasoning><answer>4</answer>": 0.8, "<answer>4</answer>": 0.4 / 2 + 0.2 + 0.2,
        "<reasoning>why": 0.2 + 0.2, "<reasoning>why</reasoning><answer>4": 0.8, "plain": 0.2, "": 0.2,
    }  # fmt: skip
    score = XMLParser(FIELDS).get_format_reward_func()
    assert {text: score([AssistantMessage(content=text)]) for text in rewards} == pytest.approx(rewards)
    assert {text: score(text) for text in rewards} == pytest.approx(rewards)
    said = [{"role": "assistant", "content": text} for text in ("plain", "<reasoning>a</reasoning><code>b</code>")]
    assert score(said) == pytest.approx(0.6)
    assert score([UserMessage(content="<code>f()</code>")]) == 0.0, "nothing said earns nothing"
