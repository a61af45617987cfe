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
    rubric = MathRubric(timeout_seconds=60)
    yield rubric
    await rubric.teardown()


@pytest.fixture
def rewards(make_state):
    async def rewards(rubric, *pairs, form=r"\boxed{%s}"):
        states = [
            make_state(columns={"answer": expected}, completion=[AssistantMessage(content=form.replace("%s", answer))])
            for answer, expected in pairs
        ]
        await rubric.score_group(states)
        return [state["reward"] for state in states]

    return rewards


async def test_equal_answers_are_right_and_different_ones_wrong(rubric, rewards):
    assert await rewards(rubric, *SAME, *DIFFERENT) == [1.0] * len(SAME) + [0.0] * len(DIFFERENT)
    assert await rewards(rubric, ("7", 7), ("0.5", 0.5)) == [1.0, 1.0], "need not be a text"


async def test_the_answer_is_in_the_last_box_after_the_thoughts(rubric, rewards):
    form = r"<think>\boxed{9}</think> \boxed{8} No, $\boxed{%s}$."
    assert await rewards(rubric, ("9", "9"), ("7", "9"), form=form) == [1.0, 0.0]


async def test_an_answer_without_a_box_is_wrong_unless_another_parser_takes_it(rubric, rewards):
    assert await rewards(rubric, ("1", "1"), form="%s") == [0.0]
    assert await rewards(MathRubric(parser=Parser(), timeout_seconds=60), ("0.5", "1/2"), form="%s") == [1.0]


async def test_a_long_answer_is_wrong(rewards):
    assert await rewards(MathRubric(max_verify_chars=5, timeout_seconds=60), ("1+1+1", "3"), ("1+1+1+0", "3")) == [
        1.0,
        0.0,
    ]


async def test_integers_are_compared_as_math_verify_compares_them(rubric, rewards):
    draw = random.Random(0)
    numbers = [draw.randint(-(10**digits), 10**digits) for digits in range(1, 16)]
    pairs = [(str(number), str(draw.choice([number, -number, number + 1]))) for number in numbers]
    assert await rewards(rubric, *pairs) == [verify_response(*pair, 100, 60)[0] for pair in pairs]


@pytest.mark.long
@pytest.mark.parametrize(("seconds", "reward"), [(0.1, 0.0), (30, 1.0)])
async def test_a_comparison_over_the_limit_is_wrong(rewards, seconds, reward):
    many = "1" * 100_000
    rubric = MathRubric(timeout_seconds=seconds, max_verify_chars=200_000)
    assert await rewards(rubric, (many, many)) == [reward]


def test_it_is_a_rubric_with_one_function():
    rubric = MathRubric()
    assert (rubric.funcs, rubric.weights) == ([rubric.correct_answer], [1.0])
    assert isinstance(rubric.parser, MaybeThinkParser)


async def test_further_functions_come_first(make_state):
    def boxed(completion, parser):
        return float(parser.parse_answer(completion) == extract_boxed_answer(completion[0].content))

    said = [AssistantMessage(content=r"\boxed{4}")]
    rubric, state = MathRubric([boxed], [0.25]), make_state(columns={"answer": "4"}, completion=said)
    await rubric.score_rollout(state)
    assert (state["reward"], state["metrics"]) == (1.25, {"boxed": 1.0, "correct_answer": 1.0})


def test_roots_sets_and_pairs_are_read_and_distinguished():
    scores = {pair: verify_response(*pair, 100, 60)[0] for pair in READ + MISREAD}
    assert scores == dict.fromkeys(READ, 1.0) | dict.fromkeys(MISREAD, 0.0)


def test_a_comparison_returns_its_score_and_seconds():
    score, seconds = verify_response(r"\frac{1}{2}", "0.5", max_verify_chars=100, timeout_seconds=60)
    assert (score, seconds > 0.0) == (1.0, True)


def test_an_exception_of_math_verify_is_a_wrong_answer_and_ctrl_c_is_raised(monkeypatch):
    def fail(text, parsing_timeout):
        raise error

    monkeypatch.setattr("nightjar.environments.rubrics.math_rubric.parse", fail)
    error = ValueError("cannot read it")
    assert verify_response("1", "1", max_verify_chars=100)[0] == 0.0
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        verify_response("1", "1", max_verify_chars=100)
