"""XMLParser: answers written between tags."""

import time

import pytest

from nightjar.core.messages import AssistantMessage, UserMessage
from nightjar.environments.parsers import XMLParser

FIELDS = ["reasoning", ("code", "answer")]


class TestFields:
    @pytest.mark.parametrize(
        ("fields", "error"),
        [(["a", "a"], ValueError), ([()], ValueError), (["a", 1], TypeError), ([("a", 1)], TypeError)],
    )
    def test_fields_that_cannot_be(self, fields, error):
        with pytest.raises(error):
            XMLParser(fields)

    def test_no_fields_are_a_parser_that_finds_nothing_and_a_field_think_is_warned_of(self, caplog):
        parser = XMLParser([])
        assert (parser.get_fields(), parser.parse_answer("<answer>4</answer>")) == ([], None)
        XMLParser(["think", "answer"])
        assert "'think'" in caplog.text


class TestParse:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("<reasoning>why</reasoning>\n<answer>\n 4 \n</answer>", {"reasoning": "why", "code": None, "answer": "4"}),
            ("<code>f()</code>", {"reasoning": None, "code": "f()", "answer": None}),
            ("<answer></answer>", {"reasoning": None, "code": None, "answer": ""}),
            ("<answer>4", {"reasoning": None, "code": None, "answer": None}),
            ("<answer>1</answer><answer>2</answer>", {"reasoning": None, "code": None, "answer": "1"}),
            ("<answer>1<answer>2</answer>", {"reasoning": None, "code": None, "answer": "1<answer>2"}),
        ],
    )
    def test_every_tag_is_an_attribute(self, text, expected):
        assert vars(XMLParser(FIELDS).parse(text)) == expected

    def test_the_time_grows_with_the_text_and_not_with_its_square(self):
        start = time.process_time()  # which others on this machine do not take
        XMLParser(["answer"]).parse("<answer>" * 50_000 + " " * 500_000, last=True)
        assert time.process_time() - start < 2.0


class TestAnswer:
    def test_of_a_text_the_last(self):
        assert XMLParser(FIELDS).parse_answer("<answer>1</answer><answer>2</answer>") == "2"

    def test_of_messages_the_newest_that_has_one(self):
        completion = [
            AssistantMessage(content="<answer>1</answer>"),
            {"role": "assistant", "content": [{"type": "text", "text": "<answer>2</answer>"}]},
            UserMessage(content="<answer>3</answer>"),
            AssistantMessage(content="<reasoning>hm</reasoning>"),
            AssistantMessage(content=None),
        ]
        assert XMLParser(FIELDS).parse_answer(completion) == "2"

    def test_the_answer_field_may_be_another(self):
        assert XMLParser(FIELDS, answer_field="code").parse_answer("<code>f()</code>") == "f()"


class TestFormat:
    def test_it_can_be_described(self):
        assert XMLParser(FIELDS).get_format_str() == (
            "<reasoning>\n...\n</reasoning>\n<[ code | answer ]>\n...\n</[ code | answer ]>"
        )

    @pytest.mark.parametrize("name", ["code", "answer"])
    def test_fields_are_written_under_their_first_name(self, name):
        written = XMLParser(FIELDS).format(**{"reasoning": "why", name: 4})
        assert written == "<reasoning>\nwhy\n</reasoning>\n<code>\n4\n</code>"

    def test_a_missing_field_is_an_error(self):
        with pytest.raises(ValueError, match="'code'"):
            XMLParser(FIELDS).format(reasoning="why")

    @pytest.mark.parametrize(
        ("text", "reward"),
        [
            ("<reasoning>why</reasoning><answer>4</answer>", 1.0),
            ("  <reasoning>why</reasoning> so <code>f()</code>\n", 1.0),
            ("So: <reasoning>why</reasoning><answer>4</answer>", 0.8), ("<answer>4</answer>", 0.4 / 2 + 0.2 + 0.2),
            ("<reasoning>why", 0.2 + 0.2), ("<reasoning>why</reasoning><answer>4", 0.8), ("plain", 0.2), ("", 0.2),
        ],
    )  # fmt: skip
    def test_the_reward_of_a_message(self, text, reward):
        score = XMLParser(FIELDS).get_format_reward_func()
        assert score([AssistantMessage(content=text)]) == pytest.approx(reward)
        assert score(text) == pytest.approx(reward)

    def test_the_reward_of_several_is_their_mean_and_nothing_said_earns_nothing(self):
        said = [{"role": "assistant", "content": text} for text in ("plain", "<reasoning>a</reasoning><code>b</code>")]
        assert XMLParser(FIELDS).get_format_reward_func()(said) == pytest.approx(0.6)
        assert XMLParser(FIELDS).get_format_reward_func()([UserMessage(content="<code>f()</code>")]) == 0.0
