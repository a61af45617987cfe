"""How the web view explains a reward by weights and metrics."""

import pytest

from nightjar.environments import EnvGroup, SingleTurnEnv
from nightjar.environments.rubrics import Rubric, RubricGroup
from nightjar.view.pages import digits
from nightjar.view.scores import score_of


def score(metrics, reward, weights, info=None):
    found = score_of({"metrics": metrics, "reward": reward, "info": info}, weights)
    return [(part.name, part.value, part.weight, part.contribution) for part in found.parts], dict(found.others)


def test_contributions_are_value_times_weight_and_metrics_without_weight_are_apart():
    metrics, weights = (
        {"correct": 0.0, "format": 1.0, "num_turns": 3.0},
        {"correct": 1.0, "format": 0.25, "num_turns": 0.0},
    )
    assert score(metrics, 0.25, weights) == (
        [("correct", 0.0, 1.0, 0.0), ("format", 1.0, 0.25, 0.25)],
        {"num_turns": 3.0},
    )


@pytest.mark.parametrize(
    ("reward", "weights"),
    [(0.25, None), (0.25, {}), (0.25, "x"), (0.9, {"correct": 1.0, "format": 0.25}), (None, {"correct": 1.0}),
     (0.25, {"correct": None, "format": "x"})],
)  # fmt: skip
def test_weights_are_not_shown_if_they_are_unknown_or_do_not_explain_the_reward(reward, weights):
    metrics = {"correct": 0.0, "format": 1.0}
    assert score(metrics, reward, weights) == ([], metrics)


@pytest.mark.parametrize(
    ("info", "weight"),
    [({"env_id": "words"}, 0.5), ({"env_id": ["outer", "words"]}, 2.0), ({"env_id": "sums"}, 1.0), (None, None)],
)
def test_a_group_of_environments_has_weights_for_each(info, weight):
    weights = {"sums": {"correct": 1.0}, "words": {"correct": 0.5}, "outer": {"words": {"correct": 2.0}}, "turns": 0.0}
    parts, _ = score({"correct": 1.0, "turns": 2.0}, weight or 1.0, weights, info)
    assert [part[2] for part in parts] == ([] if weight is None else [weight])


def good(completion):
    return 1.0


def test_rubrics_tell_their_weights_by_the_names_of_metrics():
    group = RubricGroup([Rubric([good], [2]), Rubric([good, len], [0.5, 0])])
    assert group.reward_weights == {"good": 2.0, "good_2": 0.5, "len": 0.0}
    row = [{"question": "2 + 2", "answer": "4"}]
    envs = [SingleTurnEnv(dataset=row, rubric=Rubric([good], [weight])) for weight in (1.0, 0.5)]
    weights = EnvGroup(envs, env_names=["sums", "words"]).rubric.reward_weights
    assert [weights[name]["good"] for name in ("sums", "words")] == [1.0, 0.5]


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.0, "3"), (0.0, "0"), (-0.5, "-0.5"), (2 / 3, "0.6667"), (1234567.0, "1,234,567"), (1e-5, "1e-05"),
     (float("nan"), "nan"), (True, "1"), (None, "–")],
)  # fmt: skip
def test_numbers_have_the_digits_that_they_need(value, text):
    assert digits(value) == text
