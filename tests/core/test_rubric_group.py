"""RubricGroup: several rubrics as one."""

import logging

import pytest

from nightjar.core.calling.decorators import teardown
from nightjar.environments.rubrics import Rubric, RubricGroup
from nightjar.errors import ModelError


@pytest.fixture
def pair(make_state):
    """Two rollouts of an example."""
    return [make_state(0, index, completion=[]) for index in (0, 1)]


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


async def test_rewards_are_added_and_metrics_of_one_name_are_both_kept_with_a_warning(make_state, caplog):
    group = RubricGroup([Rubric([good], [2.0]), Rubric([fair, good], [3.0, 0.5])])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            state = make_state(completion=[])
            await group.score_rollout(state)
            assert (state["metrics"], state["reward"]) == ({"good": 1.0, "fair": 0.5, "good_2": 1.0}, 4.0)
    assert len(caplog.records) == 1
    assert "'good_2'" in caplog.text


async def test_a_rollout_that_one_rubric_cannot_score_has_no_reward_and_is_not_shown_to_later_ones(make_state, pair):
    states = [*pair, make_state(error=ModelError("down"))]
    await RubricGroup([Rubric([good]), Rubric([broken])]).score_group(states)
    assert [(state["reward"], state["advantage"]) for state in states] == [(None, None), (2.0, 0.0), (None, None)]
    assert [state["metrics"] for state in states] == [{}, {"good": 1.0, "broken": 1.0}, {}]
    await RubricGroup([Rubric([broken]), Rubric([share])]).score_group(pair)
    assert pair[1]["metrics"] == {"broken": 1.0, "share": 1.0}


def test_a_group_has_all_functions_and_those_added_to_it_go_to_its_first_rubric(caplog):
    group = RubricGroup([Rubric([good], [2.0]), Rubric([fair, share], [3.0, 0.0])])
    assert (group.funcs, group.weights) == ([good, fair, share], [2.0, 3.0, 0.0])
    assert group.has_group_rewards
    group.add_class_object("judge", "Dredd")
    group.set_timeout_seconds(5.0)
    assert [(r.class_objects["judge"], r.scoring_timeout_seconds) for r in group.rubrics] == [("Dredd", 5.0)] * 2
    with pytest.raises(ValueError, match="at least one rubric"):
        RubricGroup([])
    first, second = Rubric([good]), Rubric([])
    group = RubricGroup([first, second])
    with caplog.at_level(logging.WARNING):
        group.add_reward_func(fair, 0.25)
        group.add_metric(share)
    assert (first.funcs, first.weights, second.funcs) == ([good, fair, share], [1.0, 0.25, 0.0], [])
    assert [record.message.split(" added")[0] for record in caplog.records] == ["A reward function", "A metric"]


async def test_objects_of_providers_reach_all_rubrics(pair):
    def near(distance):
        return 1.0 / distance

    def nearest(distances, states):
        return [float(distance == min(distances)) for distance in distances]

    group = RubricGroup([Rubric([near]), Rubric([nearest])])
    group.add_score_object_provider(lambda state: {"distance": state["input"]["rollout_index"] + 1})
    group.add_group_score_object_provider(lambda states: {"distances": [s["input"]["rollout_index"] for s in states]})
    await group.score_group(pair)
    assert [state["metrics"] for state in pair] == [{"near": 1.0, "nearest": 1.0}, {"near": 0.5, "nearest": 0.0}]


async def test_advantages_are_of_the_sum_unless_a_rubric_works_them_out_itself(make_state, pair):
    by_index = lambda state: float(state["input"]["rollout_index"])  # noqa: E731
    states = [make_state(0, index, completion=[], trajectory=[{"reward": None, "advantage": None}]) for index in (0, 1)]
    await RubricGroup([Rubric([by_index]), Rubric([good])]).score_group(states)
    assert [state["advantage"] for state in states] == [-0.5, 0.5]
    steps = [state["trajectory"][0] for state in states]
    assert steps == [{"reward": 1.0, "advantage": -0.5}, {"reward": 2.0, "advantage": 0.5}]

    class Ranked(Rubric):
        has_advantages = True

        async def score_group(self, states):
            await super().score_group(states)
            for rank, state in enumerate(states):
                state["advantage"] = float(rank)

    group = RubricGroup([Ranked([good]), Rubric([fair])])
    await group.score_group(pair)
    assert group.has_advantages
    assert [(state["reward"], state["advantage"]) for state in pair] == [(1.5, 0.0), (1.5, 1.0)]


async def test_every_rubric_cleans_up_and_is_torn_down_also_when_one_fails(make_state):
    cleaned, left = [], []

    class Leaving(Rubric):
        @teardown
        async def leave(self):
            left.append(self)

    def fail(state):
        raise OSError("the file is gone")

    group = RubricGroup([Leaving(), Leaving()])
    group.add_cleanup_handler(lambda state: cleaned.append("group"))
    group.rubrics[0].add_cleanup_handler(fail)
    group.rubrics[1].add_cleanup_handler(lambda state: cleaned.append("second"))
    with pytest.raises(OSError, match="gone"):
        await group.cleanup(make_state())
    await group.teardown()
    assert (cleaned, left) == (["group", "second"], group.rubrics)
