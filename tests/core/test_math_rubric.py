"""MathRubric: answers compared as mathematics.

The expected scores are those of verifiers 0.1.14, whose rubric was run on the same answers (the comparison itself is
math-verify's in both), and agree with what a reader of the answers says, except where a comment tells otherwise.
"""

import random

import pytest

from nightjar.core.messages import AssistantMessage
from nightjar.environments.parsers import MaybeThinkParser, Parser, extract_boxed_answer
from nightjar.environments.rubrics import MathRubric
from nightjar.environments.rubrics.math_rubric import verify_response

pytestmark = pytest.mark.slow

SAME = [
    ("1", "1"), ("x + 1", "1 + x"), (r"\frac{1}{2}", "0.5"), ("0.333333", r"\frac13"), ("1,234", "1234"),
    ("1234.0", "1234"), ("1{,}234", "1234"), ("50%", "0.5"), (r"50\%", "50"), ("50%", "50%"), (r"\sqrt{2}", "2^{1/2}"),
    ("1.41421356", r"\sqrt{2}"), ("(1,2)", "(1, 2)"), (r"\{1,2\}", r"\{2,1\}"), ("[0,1)", "[0,1)"), ("x=5", "5"),
    ("5", "x=5"), ("5 cm", "5"), (r"5\text{ cm}", "5"), ("$5", "5"), ("-3", "-3"), ("- 3", "-3"), ("+3", "3"),
    ("03", "3"), ("10^3", "1000"), (r"2\pi", "6.283185307"), (r"\text{A}", "A"), ("(A)", "A"), ("yes", "yes"),
    ("1/2", r"\dfrac{1}{2}"), (r"\tfrac12", "0.5"), ("2x+3", "3+2x"), ("x^2-1", "(x-1)(x+1)"), ("x>2", "2<x"),
    (r"\varnothing", r"\emptyset"), ("0{,}5", "0.5"), ("pi", r"\pi"),
    (r"\infty", r"\infty"), ("3+4i", "4i+3"), ("1, 2, 3", "1,2,3"), ("x=1,x=2", "1,2"), (r"\log_2 8", "3"),
    ("7!", "5040"), (r"\binom{5}{2}", "10"), ("2+2", "4"), ("2 + 2 = 4", "4"), ("-0", "0"), ("0.0", "0"),
    ("1000000", "1,000,000"), (r"\frac{1}{2}+\frac{1}{3}", r"\frac56"), (r"1\frac{1}{2}", "1.5"),
    ("10^{10}", "10000000000"), ("5\n", "5"), ("999999999999999", "999999999999999"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1 & 2\\ 3 & 4\end{bmatrix}"),
]  # fmt: skip
READ = [
    ("2√3π", r"2\sqrt{3}\pi"), ("√2x", r"\sqrt{2}x"), ("√2.25", "1.5"), ("√12", r"2\sqrt3"), ("√(2x)", r"\sqrt{2x}"),
    (r"\{(0,0),(1,1)\}", "(0,0),(1,1)"), ("(0,0),(1,1)", r"\{(0,0),(1,1)\}"),
]  # fmt: skip
"""The same, but not to verifiers."""
MISREAD = [
    ("√2x", r"\sqrt{2x}"), ("(1,2)", r"\{1,2\}"), ("(0,0),(1,2)", r"\{(0,0),(1,1)\}"),
    ("(1,2),(3,4)", r"\{1,2\},\{3,4\}"), ("((0,0),(1,1))", r"\{(0,0),(1,1)\}"),
]  # fmt: skip
"""Not the same."""
DIFFERENT = [
    ("1", "2"), (r"\frac{1}{3}", "0.5"), ("(2,1)", "(1,2)"), ("[1,2]", "(1,2)"), ("-3", "3"), ("3.14", r"\pi"),
    ("B", "A"), ("no", "yes"), ("", ""), (" ", "1"), (r"x \geq 2", "x>2"), ("{", "{"), (r"\frac{", "1"),
    ("999999999999999", "999999999999998"), ("\ud800", "1"), ("4", "four"),
    ("1e3", "1000"), ("one", "1"), ("1 1/2", "1.5"), ("٣", "3"), # the same to a reader, but not to math-verify
]  # fmt: skip


@pytest.fixture
async def rubric():
    rubric = MathRubric()
    yield rubric
    await rubric.teardown()


@pytest.fixture
def answered(make_state):
    """Makes a generated rollout that answers in a box."""

    def make(answer, expected, form=r"\boxed{%s}"):
        completion = [AssistantMessage(content=form.replace("%s", answer))]
        return make_state(columns={"answer": expected}, completion=completion)

    return make


class TestScores:
    async def test_equal_and_different_answers(self, rubric, answered):
        states = [answered(*pair) for pair in SAME + DIFFERENT]
        await rubric.score_group(states)
        assert [state["reward"] for state in states] == [1.0] * len(SAME) + [0.0] * len(DIFFERENT)

    async def test_the_answer_is_in_the_last_box_after_the_thoughts(self, rubric, answered):
        states = [
            answered(answer, "9", r"<think>\boxed{9}</think> \boxed{8} No, $\boxed{%s}$.") for answer in ("9", "7")
        ]
        await rubric.score_group(states)
        assert [state["reward"] for state in states] == [1.0, 0.0]

    async def test_an_answer_without_a_box_is_wrong(self, rubric, answered):
        state = answered("1", "1", form="%s")
        await rubric.score_rollout(state)
        assert (state["reward"], state["metrics"]) == (0.0, {"correct_answer": 0.0})

    async def test_another_parser_may_take_it(self, answered):
        state = answered("0.5", "1/2", form="%s")
        await MathRubric(parser=Parser()).score_rollout(state)
        assert state["reward"] == 1.0

    async def test_the_expected_answer_need_not_be_a_text(self, rubric, answered):
        states = [answered("7", 7), answered("0.5", 0.5)]
        await rubric.score_group(states)
        assert [state["reward"] for state in states] == [1.0, 1.0]

    async def test_a_long_answer_is_wrong(self, answered):
        states = [answered("1+1+1", "3"), answered("1+1+1+0", "3")]
        await MathRubric(max_verify_chars=5).score_group(states)
        assert [state["reward"] for state in states] == [1.0, 0.0]

    async def test_integers_are_compared_as_math_verify_compares_them(self, rubric, answered):
        draw = random.Random(0)
        numbers = [draw.randint(-(10**digits), 10**digits) for digits in range(1, 16)]
        pairs = [(str(number), str(draw.choice([number, -number, number + 1]))) for number in numbers]
        states = [answered(*pair) for pair in pairs]
        await rubric.score_group(states)
        assert [state["reward"] for state in states] == [verify_response(*pair, 100)[0] for pair in pairs]

    async def test_a_comparison_over_the_limit_is_wrong(self, answered):
        many = "1" * 100_000
        states = [answered(many, many)]
        await MathRubric(timeout_seconds=0.1, max_verify_chars=200_000).score_group(states)
        assert states[0]["reward"] == 0.0
        await MathRubric(timeout_seconds=30, max_verify_chars=200_000).score_group(states)
        assert states[0]["reward"] == 1.0


class TestRubric:
    def test_it_is_a_rubric_with_one_function(self):
        rubric = MathRubric()
        assert (rubric.funcs, rubric.weights) == ([rubric.correct_answer], [1.0])
        assert isinstance(rubric.parser, MaybeThinkParser)

    async def test_further_functions_come_first(self, answered):
        def boxed(completion, parser):
            return float(parser.parse_answer(completion) == extract_boxed_answer(completion[0].content))

        rubric, state = MathRubric([boxed], [0.25]), answered("4", "4")
        await rubric.score_rollout(state)
        assert (state["reward"], state["metrics"]) == (1.25, {"boxed": 1.0, "correct_answer": 1.0})


class TestVerifyResponse:
    @pytest.mark.parametrize(("pair", "score"), [*((pair, 1.0) for pair in READ), *((pair, 0.0) for pair in MISREAD)])
    def test_roots_sets_and_pairs_are_read_and_distinguished(self, pair, score):
        assert verify_response(*pair, max_verify_chars=100)[0] == score

    def test_score_and_seconds(self):
        score, seconds = verify_response(r"\frac{1}{2}", "0.5", max_verify_chars=100, timeout_seconds=5)
        assert score == 1.0
        assert 0.0 < seconds < 30.0

    def test_an_exception_of_math_verify_is_a_wrong_answer(self, monkeypatch):
        def fail(text, parsing_timeout):
            raise ValueError("cannot read it")

        monkeypatch.setattr("nightjar.environments.rubrics.math_rubric.parse", fail)
        assert verify_response("1", "1", max_verify_chars=100)[0] == 0.0

    def test_ctrl_c_is_raised(self, monkeypatch):
        def interrupt(text, parsing_timeout):
            raise KeyboardInterrupt

        monkeypatch.setattr("nightjar.environments.rubrics.math_rubric.parse", interrupt)
        with pytest.raises(KeyboardInterrupt):
            verify_response("1", "1", max_verify_chars=100)
