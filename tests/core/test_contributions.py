"""How the web view explains a reward by weights and metrics."""

from nightjar.environments import EnvGroup, SingleTurnEnv
from nightjar.environments.rubrics import Rubric, RubricGroup


def score(metrics, reward, weights, info=None):
    from nightjar.view.scores import score_of

    found = score_of({"metrics": metrics, "reward": reward, "info": info}, weights)
    return [(part.name, part.value, part.weight, part.contribution) for part in found.parts], dict(found.others)


def test_contributions_are_value_times_the_weight_of_a_rubric_s_metric():
    metrics = {"correct": 0.0, "format": 1.0, "num_turns": 3.0}
    parts, others = score(metrics, 0.25, {"correct": 1.0, "format": 0.25, "num_turns": 0.0})
    assert parts == [("correct", 0.0, 1.0, 0.0), ("format", 1.0, 0.25, 0.25)]
    assert others == {"num_turns": 3.0}
    metrics = {"correct": 0.0, "format": 1.0}
    for weights in (None, {}, "x", {"correct": None, "format": "x"}):
        assert score(metrics, 0.25, weights) == ([], metrics)
    assert score(metrics, 0.9, {"correct": 1.0, "format": 0.25}) == ([], metrics)
    assert score(metrics, None, {"correct": 1.0}) == ([], metrics)
    weights = {"sums": {"correct": 1.0}, "words": {"correct": 0.5}, "outer": {"words": {"correct": 2.0}}, "turns": 0.0}
    for env_id, weight in (("words", 0.5), (["outer", "words"], 2.0), ("sums", 1.0), (None, None)):
        parts, _ = score({"correct": 1.0, "turns": 2.0}, weight or 1.0, weights, env_id and {"env_id": env_id})
        assert [part[2] for part in parts] == ([] if weight is None else [weight])

    def good(completion):
        return 1.0

    group = RubricGroup([Rubric([good], [2]), Rubric([good, len], [0.5, 0])])
    assert group.reward_weights == {"good": 2.0, "good_2": 0.5, "len": 0.0}
    row = [{"question": "2 + 2", "answer": "4"}]
    envs = [SingleTurnEnv(dataset=row, rubric=Rubric([good], [weight])) for weight in (1.0, 0.5)]
    weights = EnvGroup(envs, env_names=["sums", "words"]).rubric.reward_weights
    assert [weights[name]["good"] for name in ("sums", "words")] == [1.0, 0.5]


def test_numbers_have_the_digits_that_they_need():
    from nightjar.view.pages import digits

    values = [3.0, 0.0, -0.5, 2 / 3, 1234567.0, 1e-5, float("nan"), True, None]
    assert [digits(value) for value in values] == ["3", "0", "-0.5", "0.6667", "1,234,567", "1e-05", "nan", "1", "–"]
