"""RubricGroup: several rubrics as one."""

import logging

import pytest

from nightjar.decorators import teardown
from nightjar.errors import ModelError
from nightjar.rubrics import Rubric, RubricGroup


def good(completion):
    return 1.0


def fair(completion):
    return 0.5


def share(states):
    return [1.0 / len(states)] * len(states)


def broken(state):
    if state["input"]["rollout_index"] == 0:
        raise ValueError("cannot read it")
    return 1.0


def test_needs_a_rubric():
    with pytest.raises(ValueError, match="at least one rubric"):
        RubricGroup([])


async def test_rewards_are_added_and_metrics_put_side_by_side(make_state):
    state = make_state(completion=[])
    await RubricGroup([Rubric([good], [2.0]), Rubric([fair], [3.0])]).score_rollout(state)
    assert (state["reward"], state["metrics"]) == (3.5, {"good": 1.0, "fair": 0.5})


async def test_the_advantage_is_that_of_the_summed_reward(make_state):
    def by_index(state):
        return float(state["input"]["rollout_index"])

    states = [make_state(0, index, completion=[]) for index in (0, 1)]
    await RubricGroup([Rubric([by_index]), Rubric([good])]).score_group(states)
    assert [state["advantage"] for state in states] == [-0.5, 0.5]


async def test_metrics_of_one_name_are_both_kept_with_a_warning(make_state, caplog):
    state = make_state(completion=[])
    with caplog.at_level(logging.WARNING):
        await RubricGroup([Rubric([good]), Rubric([good], [0.5])]).score_rollout(state)
    assert (state["metrics"], state["reward"]) == ({"good": 1.0, "good_2": 1.0}, 1.5)
    assert "Two reward functions are called 'good': one is recorded as 'good_2'" in caplog.text


async def test_the_warning_about_names_is_given_once(make_state, caplog):
    group = RubricGroup([Rubric([good]), Rubric([good])])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await group.score_rollout(make_state(completion=[]))
    assert len(caplog.records) == 1


async def test_what_one_rubric_cannot_score_has_no_reward(make_state):
    states = [make_state(0, index, completion=[]) for index in (0, 1)]
    await RubricGroup([Rubric([good]), Rubric([broken])]).score_group(states)
    assert [state["reward"] for state in states] == [None, 2.0]
    assert [state["metrics"] for state in states] == [{}, {"good": 1.0, "broken": 1.0}]


async def test_what_an_earlier_rubric_could_not_score_is_not_shown_to_later_ones(make_state):
    states = [make_state(0, index, completion=[]) for index in (0, 1)]
    await RubricGroup([Rubric([broken]), Rubric([share])]).score_group(states)
    assert states[1]["metrics"] == {"broken": 1.0, "share": 1.0}


async def test_failed_rollouts_are_not_scored(make_state):
    state = make_state(error=ModelError("down"))
    await RubricGroup([Rubric([good]), Rubric([fair])]).score_group([state])
    assert (state["reward"], state["advantage"]) == (None, None)


def test_a_group_function_in_any_rubric_makes_it_a_group_rubric():
    assert RubricGroup([Rubric([good]), Rubric([share])]).has_group_rewards


def test_functions_and_weights_of_all_rubrics_in_order():
    group = RubricGroup([Rubric([good], [2.0]), Rubric([fair, share], [3.0, 0.0])])
    assert (group.funcs, group.weights) == ([good, fair, share], [2.0, 3.0, 0.0])


def test_a_function_is_added_to_the_first_rubric():
    first, second = Rubric([good]), Rubric([])
    RubricGroup([first, second]).add_reward_func(fair, 0.25)
    assert (first.weights, second.weights) == ([1.0, 0.25], [])


def test_class_objects_and_timeouts_reach_all_rubrics():
    group = RubricGroup([Rubric(), Rubric()])
    group.add_class_object("judge", "Dredd")
    group.set_timeout_seconds(5.0)
    assert [(r.class_objects["judge"], r.timeout_seconds) for r in group.rubrics] == [("Dredd", 5.0)] * 2


async def test_teardown_reaches_all_rubrics():
    left = []

    class Leaving(Rubric):
        @teardown
        async def leave(self):
            left.append(self)

    group = RubricGroup([Leaving(), Leaving()])
    await group.teardown()
    assert left == group.rubrics
