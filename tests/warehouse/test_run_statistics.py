"""The statistics of a run, against counts by hand and SciPy, and ``nightjar eval stats``."""

import pytest
from scipy import stats

from nightjar.analysis import describe_run
from nightjar.errors import ConfigError


@pytest.fixture
def describe(house):
    """Publishes a run with these rewards, a list an example and None for a failed rollout, and describes it."""

    def describe(groups, *, by=None, cluster=None, alpha=0.05, **content):
        house.publish("one", groups, **{"rollouts_per_example": max(map(len, groups)), **content})
        return describe_run("one", warehouse=house.warehouse, by=by, cluster=cluster, alpha=alpha)

    return describe


def ends(interval):
    return interval.low, interval.high


def test_one_binary_rollout_an_example_has_wilsons_interval(describe):
    found = describe([[1.0]] * 81 + [[0.0]] * 182)
    # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I
    assert ends(found.reward.interval) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert found.reward.method == "Wilson"
    assert found.reward.value == pytest.approx(81 / 263)
    assert found.variance.within is None


def test_several_rollouts_are_clustered_by_example_and_an_interval_ends_where_rewards_do(describe):
    groups = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    found = describe(groups, alpha=0.5)
    # groups of one size: the mean of their means, as of single values
    expected = stats.ttest_1samp([0.5, 1.0, 0.0, 1.0], 0).confidence_interval(0.5)
    assert ends(found.reward.interval) == pytest.approx(tuple(expected))
    assert found.reward.clusters == 4
    # within: (1/2) / 4; squares of means about 5/8: .75 - ... = 2 · (1/64 + 9/64 + 25/64 + 9/64) / 3 = 11/24
    assert found.variance.within == pytest.approx(1 / 8)
    assert found.variance.between == pytest.approx((11 / 24 - 1 / 8) / 2)
    assert ends(describe([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]).reward.interval) == (0.0, 1.0)


def test_pass_rates_count_examples_with_all_rollouts(describe):
    found = describe([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, None]])
    one, two = found.pass_rates
    assert [rate.k for rate in (one, two)] == [1, 2]
    assert (one.at_k.value, two.at_k.value, two.all_k.value) == pytest.approx((1 / 2, 2 / 3, 1 / 3))
    assert two.at_k.examples == 3
    assert two.at_k.method == "Wilson"  # of three examples two have it: a share
    assert one.at_k.method == "Student's t, by cluster"


def test_examples_of_one_passage_are_one_cluster(describe):
    infos = [{"passage": "a"}, {"passage": "a"}, {"passage": "b"}, {"passage": "b"}, {}]
    found = describe([[1.0], [1.0], [0.0], [0.0], [1.0]], infos=infos, cluster="passage")
    assert found.reward.clusters == 3
    assert found.reward.method == "Student's t, by cluster"
    with pytest.raises(ConfigError, match="has 'pasage'"):
        describe([[1.0]], infos=infos, cluster="pasage")


@pytest.mark.parametrize(("field", "otherwise"), [("subject", "none"), ("task", "math")])
def test_categories_have_their_own_means(describe, field, otherwise):
    infos = [{field: "law"}, {field: "maths"}, {field: "maths"}, {}]
    found = describe([[1.0], [1.0], [0.0], [0.0]], infos=infos, by=field)
    assert {name: (one.examples, one.value) for name, one in found.categories.items()} == {
        "law": (1, 1.0), "maths": (2, 0.5), otherwise: (1, 0.0)
    }  # fmt: skip


def test_what_failed_is_bounded(describe):
    found = describe([[1.0], [0.0], [None]], rollouts=4)
    assert (found.failed, found.coverage) == (1, 0.5)
    assert (found.if_failed_wrong, found.if_failed_right) == (0.25, 0.75)


def test_retried_rollouts_with_lower_rewards_are_reported(describe):
    groups = [[0.0, 1.0, 1.0, 1.0]] * 12 + [[1.0, 1.0, 1.0, 1.0]]
    found = describe(groups, retried={(example, 0) for example in range(13)})
    assert found.retries.count == 13
    assert found.retries.effect.difference == pytest.approx(-12 / 13)
    assert found.retries.effect.is_within
    assert found.retries.effect.p_value < 1e-6


def test_nothing_scored_is_no_mean_and_an_unknown_run_is_an_error(describe, house):
    found = describe([[None], [None]])
    assert (found.reward.value, found.if_failed_wrong, found.pass_rates) == (None, None, [])
    assert found.categories == {}
    with pytest.raises(ConfigError, match="'two'"):
        describe_run("two", warehouse=house.warehouse)


@pytest.fixture
def folder(terminal, house):
    groups = [[float(n < 6)] * 2 for n in range(9)] + [[1.0, None]]
    infos = [{"subject": "law" if n % 2 else "maths"} for n in range(10)]
    told = {"status": "incomplete", "rollouts_per_example": 2, "model": "open/gpt", "env_id": "quiz"}
    house.publish("one", groups, place=terminal / "run", infos=infos, **told)


def test_shows_how_well_a_run_is_known_at_80_columns(folder, nightjar):
    told = nightjar("eval", "stats", "on", "--by", "subject")
    assert told.width <= 80
    # 13 right of 19; of the ten examples' totals 2, 2, 2, 2, 2, 2, 0, 0, 0, 1 about .6842 times their sizes
    for begin in ("Avg reward: 0.6842 [", "law 5 ", "2 0.6667 "):
        assert any(line.startswith(begin) for line in told.lines)
    assert {"Run: one (incomplete)", "Scored: 19 of 20 rollouts, 10 examples"} <= set(told.lines)
    failed = "Failed: 1 have no reward; the mean would be 0.6500 if all were wrong, 0.7000 if all were right"
    assert failed in " ".join(" ".join(told.lines).split())


def test_takes_a_run_directory_and_a_model_prints_json_and_errors_of_one_line(folder, nightjar):
    told = nightjar("eval", "stats", "open/gpt@quiz", "--json").json
    assert told["reward"]["value"] == pytest.approx(13 / 19)
    assert nightjar("eval", "stats", "run", "--json").json["pass_rates"] == told["pass_rates"]
    told = nightjar("eval", "stats", "one", "--by", "subjekt")
    assert (told.code, told.out) == (1, "")
    assert "No example of run 'one' has 'subjekt' in its info" in told.err
    assert nightjar("eval", "stats", "two").code == 1
