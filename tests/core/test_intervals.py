"""Intervals and tests of shares and means, against published numbers, SciPy, statsmodels and values worked by hand."""

import math

import pytest
from late import late

np, stats, statistics, intervals, exchange = late(
    "numpy", "scipy.stats", "nightjar.statistics", "nightjar.statistics.intervals", "nightjar.statistics.exchange"
)
GROUPS = [[1.0, 0.0, 1.0], [0.0, 0.0], [1.0], [0.25, 0.75, 0.5, 1.0], [0.0, 1.0]]


def ends(interval):
    return interval.low, interval.high


def test_the_t_interval_by_hand():
    # mean 2/3 and error 4/9 as in test_stats.py; t of one degree of freedom at 97.5 % is 12.7062 (any table)
    interval = intervals.t_interval(statistics.clustered_mean([[1.0, 1.0], [0.0]]), 2)
    assert ends(interval) == pytest.approx((2 / 3 - 12.7062 * 4 / 9, 2 / 3 + 12.7062 * 4 / 9), abs=1e-4)


def test_the_t_interval_of_single_values_is_that_of_scipy():
    values = [0.1, 0.9, 0.4, 0.4, 0.8, 0.25]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert ends(
        intervals.t_interval(statistics.clustered_mean([[value] for value in values]), 6, alpha=0.1)
    ) == pytest.approx(expected)


@pytest.mark.slow
def test_the_t_interval_of_clusters_is_that_of_a_cluster_robust_regression():
    import statsmodels.api as sm

    values = [value for group in GROUPS for value in group]
    labels = [label for label, group in enumerate(GROUPS) for _ in group]
    fit = sm.OLS(values, np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(labels), "use_correction": True}, use_t=True
    )
    estimate = statistics.clustered_mean(GROUPS)
    # statsmodels' correction is G/(G-1) * (N-1)/(N-K), which is the same with the mean alone (K = 1)
    assert estimate.stderr == pytest.approx(fit.bse[0])
    assert ends(intervals.t_interval(estimate, len(GROUPS))) == pytest.approx(tuple(fit.conf_int(0.05)[0]))


def test_intervals_of_shares_are_those_that_newcombe_published():
    # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I
    for successes, trials, of_wilson, exact in (
        (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
        (0, 20, (0, 0.1611), (0, 0.1684)),
        (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
    ):
        assert ends(intervals.wilson(successes, trials)) == pytest.approx(of_wilson, abs=5e-5)
        assert ends(intervals.clopper_pearson(successes, trials)) == pytest.approx(exact, abs=5e-5)


@pytest.mark.slow
def test_intervals_of_shares_are_those_of_statsmodels():
    from statsmodels.stats.proportion import proportion_confint

    for interval, method in ((intervals.wilson, "wilson"), (intervals.clopper_pearson, "beta")):
        for counts in ((0, 5), (5, 5), (286, 1319), (515, 1319)):
            expected = proportion_confint(*counts, 0.1, method=method)
            assert ends(interval(*counts, 0.1)) == pytest.approx(expected, abs=1e-12)


def test_intervals_of_shares_of_no_trials_say_nothing_and_what_was_not_seen_may_be_there():
    assert intervals.wilson(0, 0) == intervals.clopper_pearson(0, 0) == intervals.Interval(0.0, 1.0)
    assert intervals.unseen_share(100, 0.1) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert intervals.unseen_share(0) == 1.0


def test_the_bootstrap_interval_of_single_values_is_that_of_scipy():
    values = np.random.default_rng(7).exponential(size=60)
    expected = stats.bootstrap((values,), np.mean, rng=np.random.default_rng(1)).confidence_interval
    assert ends(intervals.cluster_bootstrap([[value] for value in values])) == pytest.approx(tuple(expected), abs=0.02)


def test_the_bootstrap_draws_whole_groups():
    # groups of copies know no more than their means: the interval is that of one value each
    values = np.random.default_rng(7).exponential(size=30)
    copies = intervals.cluster_bootstrap([[value] * 50 for value in values])
    assert ends(copies) == pytest.approx(ends(intervals.cluster_bootstrap([[value] for value in values])))


def test_the_bootstrap_says_the_same_again_and_another_seed_something_else():
    assert intervals.cluster_bootstrap(GROUPS) == intervals.cluster_bootstrap([*GROUPS, []])
    many = [[value] for value in np.random.default_rng(7).exponential(size=60)]
    assert intervals.cluster_bootstrap(many, seed=1) != intervals.cluster_bootstrap(many)


def test_the_bootstrap_says_nothing_about_one_group_or_equal_groups():
    unknown = intervals.Interval(-math.inf, math.inf)
    assert intervals.t_interval(statistics.Estimate(0.5, None), 1) == unknown
    assert intervals.cluster_bootstrap([[1.0, 0.0]]) == intervals.cluster_bootstrap([[1.0], [1.0]]) == unknown


def test_the_interval_of_paired_shares_by_hand():
    # 8 gained and 12 lost of 1,000: 9/1002 - 13/1002 = -.003992; variance (22/1002 - .003992²)/1002 = 2.18962e-5;
    # its root .00467934; by t of 999 degrees of freedom, 1.962341: .00918246
    assert ends(intervals.paired_shares(8, 12, 1_000)) == pytest.approx((-0.0131745, 0.0051905), abs=1e-6)


def test_the_interval_of_paired_shares_is_the_ordinary_interval_with_one_more_pair_of_either_kind():
    differences = np.array([1.0] * 31 + [-1.0] * 13 + [0.0] * 158)
    middle, error = differences.mean(), differences.std() / math.sqrt(len(differences))
    half = stats.t.isf(0.05, 199) * error
    assert ends(intervals.paired_shares(30, 12, 200, 0.1)) == pytest.approx((middle - half, middle + half))


def test_the_interval_of_paired_shares_has_a_width_where_nothing_has_changed_and_ends_at_one():
    assert ends(intervals.paired_shares(0, 0, 5)) == pytest.approx((-0.561, 0.561), abs=1e-3)
    assert intervals.paired_shares(0, 0, 2) == intervals.Interval(-1.0, 1.0)
    assert intervals.paired_shares(0, 1, 1) == intervals.Interval(-1.0, 1.0)
    assert intervals.paired_shares(0, 0, 10_000).high < 0.001


@pytest.mark.parametrize(("pairs", "fixed", "drop"), [(60, 0.0, 0.05), (100, 0.0, 0.05), (60, 0.05, 0.02)])
def test_the_interval_of_paired_shares_misses_about_as_often_as_it_says(pairs, fixed, drop):
    # every table that can be, with its chance where the drop is real: neither end may miss it much more than 2.5 %
    lost, gained = np.mgrid[: pairs + 1, : pairs + 1]
    unchanged = pairs - lost - gained
    tables = np.stack([lost, gained, unchanged], axis=-1)[unchanged >= 0]
    chances = stats.multinomial.pmf(tables, pairs, [fixed + drop, fixed, 1 - 2 * fixed - drop])
    likely = chances > 1e-9
    found = [intervals.paired_shares(int(table[1]), int(table[0]), pairs) for table in tables[likely]]
    too_good = chances[likely][[one.low > -drop for one in found]].sum()
    too_bad = chances[likely][[one.high < -drop for one in found]].sum()
    assert too_good < 0.047  # where nothing is ever fixed; with 5 % fixed it is 1.2 %
    assert too_bad < 0.025


def test_mcnemar_by_hand():
    # of 2^10 ways 1 + 10 have at most one gained, as many at most one lost
    assert intervals.mcnemar(1, 9) == pytest.approx(22 / 1024)
    assert intervals.mcnemar(0, 0) == 1.0


def test_the_sign_flip_test_is_that_of_scipy():
    differences = np.random.default_rng(3).normal(-0.1, 0.5, size=40)
    expected = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", alternative="less", n_resamples=20_000, rng=1
    ).pvalue
    assert exchange.chance_of_so_low([[value, 0.0] for value in differences]) == pytest.approx(expected, abs=0.015)


def test_pairs_needed():
    # (1.959964 + 0.841621)² = 7.84888; deviation 0.5 and gap 0.1: times 25
    assert intervals.pairs_needed(0.5, 0.1) == pytest.approx(196.222, abs=1e-3)
    assert intervals.pairs_needed(0.5, 0.0) == math.inf
