"""The aggregates of a run, against numbers worked out by hand."""

import json
import math

import pytest

from nightjar.engine.runs import summarize
from nightjar.errors import RunDirectoryError


def scored(example_id, rollout_index, reward, **fields):
    return {
        "example_id": example_id, "rollout_index": rollout_index, "reward": reward, "metrics": {"correct": reward},
        "error": None, "is_truncated": False, "stop_condition": "max_turns_reached",
        "token_usage": {"input_tokens": 10, "output_tokens": 5}, "model": "served", **fields,
    }  # fmt: skip


def failed(example_id, rollout_index, chain="ModelError -> RateLimitError", message="slow down"):
    error = {"error": chain.partition(" ")[0], "message": message, "error_chain_repr": chain}
    fields = {"metrics": {}, "error": error, "token_usage": None, "model": None, "stop_condition": "has_error"}
    return scored(example_id, rollout_index, None, **fields)


@pytest.fixture
def summary_of(tmp_path):
    def summary_of(rows, rollouts=None, rollouts_per_example=1, pass_threshold=0.5):
        path = tmp_path / "results.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        rollouts = len(rows) if rollouts is None else rollouts
        return summarize(
            path, rollouts=rollouts, rollouts_per_example=rollouts_per_example, pass_threshold=pass_threshold
        )

    return summary_of


PAIR = [scored(0, 0, 1.0), scored(0, 1, 1.0), scored(1, 0, 0.0), failed(1, 1)]


def test_aggregates_by_hand(summary_of):
    approx = pytest.approx
    means = [scored(0, 0, 1.0), scored(1, 0, 0.5), failed(2, 0), scored(3, 0, 0.0)]
    metrics = [scored(0, 0, 1.0, metrics={"a": 1.0, "b": 3.0}), scored(1, 0, 1.0, metrics={"a": 0.0})]
    for rows, options, expected in (
        ([], {"rollouts": 6}, {"avg_reward": None, "stderr": None, "usage": None, "avg_metrics": {}, "coverage": 0.0}),
        ([failed(0, 0), failed(1, 0)], {}, {"avg_reward": None, "scored": 0, "failed": 2, "avg_error": 1.0}),
        (means, {}, {"avg_reward": 0.5, "avg_metrics": {"correct": 0.5}}),
        ([scored(0, 0, 1.0), failed(1, 0)], {"rollouts": 8}, {"coverage": 0.125, "avg_error": 0.125}),
        # 1, 1, 0, 0: variance (4 · 1/4) / 3 = 1/3; error √(1/3 / 4) = 1/√12
        ([scored(n, 0, float(n < 2)) for n in range(4)], {}, {"stderr": approx(1 / math.sqrt(12))}),
        # groups (1, 1) and (0): see test_stats
        (PAIR, {"rollouts_per_example": 2}, {"avg_reward": approx(2 / 3), "stderr": approx(4 / 9)}),
        (metrics, {}, {"avg_metrics": {"a": 0.5, "b": 3.0}}),
        ([scored(0, 0, None, metrics={})], {}, {"scored": 1, "avg_reward": None}),
    ):
        summary = summary_of(rows, **options)
        assert {name: getattr(summary, name) for name in expected} == expected


def test_pass_at_k_of_complete_examples(summary_of):
    three = [(0, 1, 1), (1, 0, 1), (2, 0, 0)]
    halves = [scored(0, 0, 0.5), scored(0, 1, 0.49)]
    for rows, options, at_k, all_k in (
        # r = 2; correct: 2, 1, 0 of 2. pass@1: 1, 1/2, 0. pass@2: 1, 1, 0. pass^2: 1, 0, 0.
        ([scored(e, i, pair[i]) for e, *pair in three for i in (0, 1)], {}, {1: 1 / 2, 2: 2 / 3}, {1: 1 / 2, 2: 1 / 3}),
        (PAIR, {}, {1: 1.0, 2: 1.0}, {1: 1.0, 2: 1.0}),
        (halves, {}, {1: 0.5, 2: 1.0}, {1: 0.5, 2: 0.0}),
        (halves, {"pass_threshold": 0.4}, {1: 1.0, 2: 1.0}, {1: 1.0, 2: 1.0}),
        ([scored(0, 0, 1.0)], {"rollouts_per_example": 1}, {}, {}),
    ):
        summary = summary_of(rows, **{"rollouts_per_example": 2, **options})
        assert (summary.pass_at_k, summary.pass_all_k) == (pytest.approx(at_k), pytest.approx(all_k))


def test_usage_errors_stop_conditions_truncation_and_models_are_counted(summary_of):
    spent = failed(1, 0) | {"token_usage": {"input_tokens": 7, "output_tokens": 0}}
    summary = summary_of([scored(0, 0, 1.0), spent, failed(2, 0), failed(3, 0, "KeyError", "k")])
    assert summary.usage == {"input_tokens": 17, "output_tokens": 5}
    assert list(summary.errors.items()) == [("ModelError -> RateLimitError", 2), ("KeyError", 1)]
    assert summary.error_examples["KeyError"] == "k"
    rows = [
        scored(0, 0, 1.0, model="b"), scored(1, 0, 1.0, model="a", stop_condition=None, is_truncated=True),
        scored(2, 0, 1.0, model="b"), failed(3, 0),
    ]  # fmt: skip
    summary = summary_of(rows)
    assert (summary.stop_conditions, summary.truncated) == ({"max_turns_reached": 2, "none": 1}, 1)
    assert summary.models == ["a", "b"]


def test_a_damaged_line_is_an_error(tmp_path):
    (tmp_path / "results.jsonl").write_text("{\n")
    with pytest.raises(RunDirectoryError, match="line 1 "):
        summarize(tmp_path / "results.jsonl", rollouts=1, rollouts_per_example=1, pass_threshold=0.5)
