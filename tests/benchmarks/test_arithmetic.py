"""The arithmetic benchmark: generated problems with right answers."""

import itertools
import re

import pytest

from nightjar.benchmarks.arithmetic import load_environment, make_problems
from nightjar.core.messages import AssistantMessage
from nightjar.model_server import ArithmeticSolver

PROBLEM = re.compile(r"What is (\(\d+ [-+*] \d+\) [-+*] \d+)\?")


def test_every_answer_is_what_python_computes_and_all_operations_occur_in_both_places():
    problems = make_problems(300, seed=1, largest=99)
    expressions = [PROBLEM.fullmatch(problem["question"])[1] for problem in problems]
    assert [problem["answer"] for problem in problems] == [str(eval(expression)) for expression in expressions]
    assert {tuple(re.findall(r" ([-+*]) ", expression)) for expression in expressions} == {
        *itertools.product("+-*", "+-*")
    }


def test_equal_seeds_give_equal_problems_and_a_longer_list_begins_like_a_shorter_one():
    problems = make_problems(50, seed=3, largest=9)
    assert problems == make_problems(50, seed=3, largest=9) != make_problems(50, seed=4, largest=9)
    assert problems[:20] == make_problems(20, seed=3, largest=9)


def test_numbers_are_at_most_the_largest():
    numbers = {int(n) for problem in make_problems(300, 0, 7) for n in re.findall(r"\d+", problem["question"])}
    assert numbers == set(range(1, 8))


@pytest.mark.parametrize("error_rate", [0.0, 1.0])
async def test_the_scripted_solver_is_scored_right(make_state, error_rate):
    env, solver = load_environment(num_problems=40), ArithmeticSolver(error_rate)
    for number in range(40):
        example = env.examples[number]
        said = AssistantMessage(content=solver.answer(example["prompt"]).text)
        state = make_state(number, columns={"answer": example["answer"]}, completion=[said])
        await env.rubric.score_rollout(state)
        assert state["reward"] == 1.0 - error_rate
