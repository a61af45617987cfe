"""The aggregates of a run, against numbers worked out by hand."""

import json
import math

import pytest

from nightjar.engine.runs import summarize
from nightjar.errors import RunDirectoryError


def scored(example_id, rollout_index, reward, **fields):
    return {
        "example_id": example_id,
        "rollout_index": rollout_index,
        "reward": reward,
        "metrics": {"correct": reward},
        "error": None,
        "is_truncated": False,
        "stop_condition": "max_turns_reached",
        "token_usage": {"input_tokens": 10, "output_tokens": 5},
        "model": "served",
        **fields,
    }


def failed(example_id, rollout_index, chain="ModelError -> RateLimitError", message="slow down"):
    error = {"error": chain.partition(" ")[0], "message": message, "error_chain_repr": chain}
    fields = {"metrics": {}, "error": error, "token_usage": None, "model": None, "stop_condition": "has_error"}
    return scored(example_id, rollout_index, None, **fields)


@pytest.fixture
def summary_of(tmp_path):
    def summarize_(rows, rollouts=None, rollouts_per_example=1, pass_threshold=0.5):
        path = tmp_path / "results.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return summarize(
            path,
            rollouts=len(rows) if rollouts is None else rollouts,
            rollouts_per_example=rollouts_per_example,
            pass_threshold=pass_threshold,
        )

    return summarize_


class TestNothing:
    def test_is_none_not_zero(self, summary_of):
        summary = summary_of([], rollouts=6)
        assert (summary.avg_reward, summary.stderr, summary.usage, summary.avg_metrics) == (None, None, None, {})
        assert summary.coverage == 0.0

    def test_only_failures_have_no_average(self, summary_of):
        summary = summary_of([failed(0, 0), failed(1, 0)])
        assert (summary.avg_reward, summary.scored, summary.failed, summary.avg_error) == (None, 0, 2, 1.0)


class TestRewards:
    def test_means_are_over_scored_rollouts(self, summary_of):
        summary = summary_of([scored(0, 0, 1.0), scored(1, 0, 0.5), failed(2, 0), scored(3, 0, 0.0)])
        assert (summary.avg_reward, summary.avg_metrics) == (0.5, {"correct": 0.5})

    def test_coverage_and_errors_are_parts_of_what_was_asked_for(self, summary_of):
        summary = summary_of([scored(0, 0, 1.0), failed(1, 0)], rollouts=8)
        assert (summary.coverage, summary.avg_error) == (0.125, 0.125)

    def test_the_standard_error_of_one_rollout_an_example(self, summary_of):
        # 1, 1, 0, 0: variance (4 · 1/4) / 3 = 1/3; error √(1/3 / 4) = 1/√12
        summary = summary_of([scored(number, 0, reward) for number, reward in enumerate([1.0, 1.0, 0.0, 0.0])])
        assert summary.stderr == pytest.approx(1 / math.sqrt(12))

    def test_the_standard_error_is_clustered_by_example(self, summary_of):
        # Groups (1, 1) and (0): see test_stats
        rows = [scored(0, 0, 1.0), scored(0, 1, 1.0), scored(1, 0, 0.0), failed(1, 1)]
        summary = summary_of(rows, rollouts_per_example=2)
        assert (summary.avg_reward, summary.stderr) == (pytest.approx(2 / 3), pytest.approx(4 / 9))

    def test_a_metric_that_some_rollouts_lack_is_averaged_over_the_others(self, summary_of):
        rows = [scored(0, 0, 1.0, metrics={"a": 1.0, "b": 3.0}), scored(1, 0, 1.0, metrics={"a": 0.0})]
        assert summary_of(rows).avg_metrics == {"a": 0.5, "b": 3.0}

    def test_rollouts_that_were_not_scored_count_as_done_without_a_reward(self, summary_of):
        summary = summary_of([scored(0, 0, None, metrics={})])
        assert (summary.scored, summary.avg_reward) == (1, None)


class TestPassAtK:
    def test_by_hand(self, summary_of):
        # r = 2; correct: 2, 1, 0 of 2. pass@1: 1, 1/2, 0. pass@2: 1, 1, 0. pass^2: 1, 0, 0.
        rewards = [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]
        rows = [scored(e, i, reward) for e, pair in enumerate(rewards) for i, reward in enumerate(pair)]
        summary = summary_of(rows, rollouts_per_example=2)
        assert summary.pass_at_k == pytest.approx({1: 1 / 2, 2: 2 / 3})
        assert summary.pass_all_k == pytest.approx({1: 1 / 2, 2: 1 / 3})

    def test_only_examples_with_all_rollouts_scored_count(self, summary_of):
        rows = [scored(0, 0, 1.0), scored(0, 1, 1.0), scored(1, 0, 0.0), failed(1, 1)]
        assert summary_of(rows, rollouts_per_example=2).pass_at_k == {1: 1.0, 2: 1.0}

    def test_correct_is_a_reward_of_the_threshold_or_more(self, summary_of):
        rows = [scored(0, 0, 0.5), scored(0, 1, 0.49)]
        assert summary_of(rows, rollouts_per_example=2).pass_at_k == {1: 0.5, 2: 1.0}
        assert summary_of(rows, rollouts_per_example=2, pass_threshold=0.4).pass_all_k == {1: 1.0, 2: 1.0}

    def test_one_rollout_an_example_has_none(self, summary_of):
        assert summary_of([scored(0, 0, 1.0)]).pass_at_k == {}


class TestCounts:
    def test_usage_is_of_all_rollouts_failed_ones_too(self, summary_of):
        spent = failed(1, 0) | {"token_usage": {"input_tokens": 7, "output_tokens": 0}}
        summary = summary_of([scored(0, 0, 1.0), spent, failed(2, 0)])
        assert summary.usage == {"input_tokens": 17, "output_tokens": 5}

    def test_errors_by_their_chain_the_most_frequent_first(self, summary_of):
        rows = [failed(0, 0, "KeyError", "k"), failed(1, 0), failed(2, 0)]
        summary = summary_of(rows)
        assert list(summary.errors.items()) == [("ModelError -> RateLimitError", 2), ("KeyError", 1)]
        assert summary.error_examples["KeyError"] == "k"

    def test_stop_conditions_and_truncation_of_scored_rollouts(self, summary_of):
        rows = [scored(0, 0, 1.0), scored(1, 0, 1.0, stop_condition=None, is_truncated=True), failed(2, 0)]
        summary = summary_of(rows)
        assert (summary.stop_conditions, summary.truncated) == ({"max_turns_reached": 1, "none": 1}, 1)

    def test_models_that_answered(self, summary_of):
        rows = [scored(0, 0, 1.0, model="b"), scored(1, 0, 1.0, model="a"), scored(2, 0, 1.0, model="b")]
        assert summary_of(rows).models == ["a", "b"]


def test_damage_is_named(tmp_path):
    (tmp_path / "results.jsonl").write_text("{\n")
    with pytest.raises(RunDirectoryError, match="line 1 is damaged"):
        summarize(tmp_path / "results.jsonl", rollouts=1, rollouts_per_example=1, pass_threshold=0.5)
