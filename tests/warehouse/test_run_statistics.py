"""The statistics of a run, against counts by hand and SciPy, and ``nightjar eval stats``."""

from itertools import count

import pytest

from nightjar.errors import ConfigError

NUMBERS = count()


@pytest.fixture
def describe(shared_house):
    """Publishes a run with these rewards, a list an example and None for a failed rollout, and describes it."""
    from nightjar.analysis import describe_run

    def describe(groups, *, by=None, cluster=None, alpha=0.05, **content):
        run_id = f"run-{next(NUMBERS)}"
        shared_house.publish(run_id, groups, **{"rollouts_per_example": max(map(len, groups)), **content})
        return describe_run(run_id, warehouse=shared_house.warehouse, by=by, cluster=cluster, alpha=alpha)

    return describe


def ends(interval):
    return interval.low, interval.high


def test_several_rollouts_are_clustered_by_example_and_an_interval_ends_where_rewards_do(describe):
    from scipy import stats

    groups = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    found = describe(groups, alpha=0.5)
    # groups of one size: the mean of their means, as of single values
    expected = stats.ttest_1samp([0.5, 1.0, 0.0, 1.0], 0).confidence_interval(0.5)
    assert ends(found.reward.interval) == pytest.approx(tuple(expected))
    assert found.reward.clusters == 4
    # within: (1/2) / 4; squares of means about 5/8: .75 - ... = 2 · (1/64 + 9/64 + 25/64 + 9/64) / 3 = 11/24
    assert found.variance.within == pytest.approx(1 / 8)
    assert found.variance.between == pytest.approx((11 / 24 - 1 / 8) / 2)
    assert ends(describe(groups[:3]).reward.interval) == (0.0, 1.0)
    single = describe([[1.0], [1.0], [0.0]])
    assert (single.reward.method, single.variance.within) == ("Wilson", None)


def test_pass_rates_count_examples_with_all_rollouts(describe):
    one, two = describe([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, None]]).pass_rates
    assert [rate.k for rate in (one, two)] == [1, 2]
    assert (one.at_k.value, two.at_k.value, two.all_k.value) == pytest.approx((1 / 2, 2 / 3, 1 / 3))
    assert two.at_k.examples == 3
    assert two.at_k.method == "Wilson"  # of three examples two have it: a share
    assert one.at_k.method == "Student's t, by cluster"


def test_examples_of_one_passage_are_one_cluster_and_categories_have_their_own_means(describe):
    infos = [{"passage": "a", "subject": "law"}, {"passage": "a", "subject": "maths"},
             {"passage": "b", "subject": "maths"}, {"passage": "b"}, {}]  # fmt: skip
    found = describe([[1.0], [1.0], [0.0], [0.0], [1.0]], infos=infos, cluster="passage", by="subject")
    assert (found.reward.clusters, found.reward.method) == (3, "Student's t, by cluster")
    categories = {name: (one.examples, one.value) for name, one in found.categories.items()}
    assert categories == {"law": (1, 1.0), "maths": (2, 0.5), "none": (2, 0.5)}
    found = describe([[1.0], [0.0]], infos=[{"task": "law"}, {}], by="task")
    assert {name: one.value for name, one in found.categories.items()} == {"law": 1.0, "math": 0.0}
    with pytest.raises(ConfigError, match="has 'pasage'"):
        describe([[1.0]], infos=infos, cluster="pasage")


def test_what_failed_is_bounded_and_nothing_scored_is_no_mean(describe):
    found = describe([[1.0], [0.0], [None]], rollouts=4)
    assert (found.failed, found.coverage) == (1, 0.5)
    assert (found.if_failed_wrong, found.if_failed_right) == (0.25, 0.75)
    found = describe([[None], [None]])
    assert (found.reward.value, found.if_failed_wrong, found.pass_rates, found.categories) == (None, None, [], {})


def test_retried_rollouts_with_lower_rewards_are_reported(describe):
    groups = [[0.0, 1.0, 1.0, 1.0]] * 12 + [[1.0, 1.0, 1.0, 1.0]]
    retries = describe(groups, retried={(example, 0) for example in range(13)}).retries
    assert (retries.count, retries.effect.is_within) == (13, True)
    assert retries.effect.difference == pytest.approx(-12 / 13)
    assert retries.effect.p_value < 1e-6


@pytest.mark.slow
def test_the_command_takes_a_run_directory_a_run_and_a_model_and_has_errors_of_one_line(terminal, house, nightjar):
    groups = [[float(n < 6)] * 2 for n in range(9)] + [[1.0, None]]
    infos = [{"subject": "law" if n % 2 else "maths"} for n in range(10)]
    told = {"status": "incomplete", "rollouts_per_example": 2, "model": "open/gpt", "env_id": "quiz"}
    house.publish("one", groups, place=terminal / "run", infos=infos, **told)
    told = nightjar("eval", "stats", "on", "--by", "subject")
    assert told.width <= 80
    # 13 right of 19; of the ten examples' totals 2, 2, 2, 2, 2, 2, 0, 0, 0, 1 about .6842 times their sizes
    for begin in ("Avg reward: 0.6842 [", "law 5 ", "2 0.6667 "):
        assert any(line.startswith(begin) for line in told.lines)
    assert {"Run: one (incomplete)", "Scored: 19 of 20 rollouts, 10 examples"} <= set(told.lines)
    failed = "Failed: 1 have no reward; the mean would be 0.6500 if all were wrong, 0.7000 if all were right"
    assert failed in told.words
    told = nightjar("eval", "stats", "open/gpt@quiz", "--json").json
    assert told["reward"]["value"] == pytest.approx(13 / 19)
    assert nightjar("eval", "stats", "run", "--json").json["pass_rates"] == told["pass_rates"]
    told = nightjar("eval", "stats", "one", "--by", "subjekt")
    assert (told.code, told.out) == (1, "")
    assert "No example of run 'one' has 'subjekt' in its info" in told.err
    told = nightjar("eval", "stats", "two")
    assert (told.code, "'two'" in told.err) == (1, True)
