"""Reward functions: what they are given, how they are called in the records, and those that score whole groups."""

import functools
import logging

import pytest

from nightjar.core.messages import AssistantMessage
from nightjar.environments.parsers import Parser
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ModelError, ScoringError


def correct(completion, answer):
    return float(completion[-1].content == answer)


def length(completion):
    return len(completion[-1].content)


async def score(func, state, **class_objects):
    """Scores a state, which must succeed, with one function; returns the rubric."""
    rubric = Rubric([func], parser=Parser(str.strip))
    for name, value in class_objects.items():
        rubric.add_class_object(name, value)
    await rubric.score_rollout(state)
    assert state["error"] is None, state["error"]
    return rubric


async def test_arguments_are_given_by_name_in_any_order(answered, make_state):
    seen = []
    state = answered("x", info={"a": 1}, task="t", difficulty=3)

    def reward(difficulty, judge, task, info, state, answer, completion, prompt, parser):
        seen.extend((difficulty, judge, task, info, state, answer, completion, prompt, parser))
        return 1

    rubric = await score(reward, state, judge="Dredd")
    assert seen == [3, "Dredd", "t", {"a": 1}, state, "4", state["completion"], state["prompt"], rubric.parser]
    # columns that the example lacks are empty, and its task is the input
    seen, state = [], make_state(completion=[])
    await score(lambda answer, info, task: len(seen.extend((answer, info, task)) or seen), state)
    assert seen == ["", {}, state["input"]]
    seen = set()
    await score(lambda **everything: len(seen.update(everything) or seen), answered(difficulty=3))
    assert seen >= {"prompt", "completion", "answer", "info", "task", "state", "parser", "difficulty"}


async def test_arguments_are_bound_default_or_known_by_name_also_in_a_plain_dict(answered):
    for func, task, expected in (
        (functools.partial(correct, answer="5"), "", 1.0),
        (functools.partial(lambda **everything: float(everything["answer"]), answer="9"), "", 9.0),
        (lambda answer, colour="blue", *names, shade="dark": len(f"{answer} {colour} {names} {shade}"), "", 14),
        (lambda answer, colour="blue", /, completion=None: len(answer + colour + completion[0].content), "", 6),
        (lambda difficulty, task, answer: difficulty + len(task) + len(answer), {"difficulty": 3, "answer": ""}, 6),
    ):
        state = answered("5", task=task)
        await score(func, state)
        assert state["reward"] == expected
    state = {"prompt": "2+2?", "completion": [AssistantMessage(content="4")], "answer": "4", "trajectory": []}
    await Rubric([correct]).score_rollout(state)
    assert state["reward"] == 1.0


async def test_unknown_arguments_and_a_provider_that_raises_cost_the_rollout(answered):
    state = answered()
    await Rubric([lambda colour, answer, shade: 1]).score_rollout(state)
    named = str(state["error"])
    assert all(word in named for word in ("'<lambda>'", "'colour', 'shade'", "answer, completion, example_id"))
    rubric, state = Rubric([lambda length: length]), answered("seven")
    rubric.add_score_object_provider(lambda state: {"length": len(state["completion"][0].content)})
    await rubric.score_rollout(state)
    assert state["reward"] == 5.0
    rubric, state = Rubric([length]), answered()
    rubric.add_score_object_provider(lambda state: state["nothing"])
    await rubric.score_rollout(state)
    assert str(state["error"]) == "Reward function 'length': 'nothing'"


async def metrics(rubric, state):
    await rubric.score_rollout(state)
    return state["metrics"]


async def test_functions_are_recorded_by_what_they_wrap_or_their_class_and_two_of_one_name_both(answered, caplog):
    class Politeness:
        async def __call__(self, completion):
            return 0.5

    rubric, state = Rubric([functools.partial(length), Politeness()]), answered("5")
    assert await metrics(rubric, state) == {"length": 1.0, "Politeness": 0.5}

    def reward(completion):
        return 0.25

    state = answered()
    assert await metrics(Rubric([reward, correct]), state) == {"reward": 0.25, "correct": 1.0}
    assert state["reward"] == 1.25

    def make(score):
        def style(completion):
            return score

        return style

    state = answered()
    with caplog.at_level(logging.WARNING):
        rubric = Rubric([make(0.25), make(0.5), make(0.125)])
    assert await metrics(rubric, state) == {"style": 0.25, "style_2": 0.5, "style_3": 0.125}
    assert state["reward"] == 0.875
    assert "Two reward functions are called 'style': the second is recorded as 'style_2'" in caplog.text


async def test_group_functions_are_given_lists_over_the_rollouts_that_have_not_failed(answered):
    seen = []

    def group(prompts, completions, answers, infos, tasks, states, difficulty):
        seen.append([len(x) for x in (prompts, completions, answers, infos, tasks, states)] + [difficulty])
        return [0.0, 0.0]

    def single(completion) -> list:
        return 1.0

    await Rubric([group]).score_group([answered(difficulty=3), answered("5", 1, difficulty=3)])
    assert seen == [[2, 2, 2, 2, 2, 2, [3, 3]]]
    assert not Rubric([single]).has_group_rewards
    states = [answered(), answered("5", 1)]
    states[0]["error"] = ModelError("down")
    await Rubric([lambda states: [float(len(states))] * len(states)]).score_group(states)
    assert [state["reward"] for state in states] == [None, 1.0]
    states = [answered(), answered("5", 1)]
    await Rubric([lambda states: [1.0]]).score_group(states)
    assert all("returned 1 scores for 2 rollouts" in str(state["error"]) for state in states)


async def test_functions_run_in_their_order_singles_and_groups_mixed(answered):
    order = []
    one, three = (lambda state, name=name: len(order.append(name) or "") for name in ("one", "three"))
    await Rubric([one, lambda states: order.append("two") or [0], three]).score_group([answered()])
    assert order == ["one", "two", "three"]
    with pytest.raises(ScoringError, match="single rollout"):
        await Rubric([lambda states: [1.0]]).score_rollout(answered())
