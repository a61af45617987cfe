"""Variance components and marked effects, against a textbook, statsmodels and values worked by hand."""

import pytest
from late import late

np, stats, variance = late("numpy", "scipy.stats", "nightjar.statistics.variance")


LOOMS = [[98, 97, 99, 96], [91, 90, 93, 92], [96, 95, 97, 95], [95, 96, 99, 98]]
"""Strength of fabric of four looms: Montgomery, "Design and Analysis of Experiments", example 3.11 (8th edition)."""


def test_variance_components_are_those_of_montgomery_and_by_hand():
    found = variance.variance_components(LOOMS)
    assert found.within == pytest.approx(1.90, abs=5e-3)
    assert found.between == pytest.approx(6.96, abs=5e-3)
    assert found.shared == pytest.approx(6.96 / 8.86, abs=1e-3)  # "about 79 percent"
    # means 1/2, 1, 0; within (1/2 + 0 + 0) / 3; mean of all 2/3; squares 2/36 + 3/9 + 4/9 = 5/6, by two: 5/12;
    # usual size (6 - 14/6) / 2 = 11/6: between (5/12 - 1/6) / (11/6) = 3/22
    found = variance.variance_components([[1.0, 0.0], [1.0, 1.0, 1.0], [0.0], []])
    assert (found.between, found.within) == (pytest.approx(3 / 22), pytest.approx(1 / 6))
    # never below zero, and unknown with one rollout an example
    assert variance.variance_components([[1.0, 0.0], [0.0, 1.0]]) == variance.Components(0.0, 0.5)
    assert variance.variance_components([[1.0], [0.0]]) == variance.Components(None, None)
    assert variance.variance_components([[1.0, 0.0]]) == variance.Components(None, 0.5)
    assert variance.variance_components([]).shared is None


@pytest.mark.slow
def test_the_marked_effect_is_that_of_a_regression_with_fixed_effects_and_clustered_errors():
    import statsmodels.api as sm

    draw = np.random.default_rng(3)
    groups = np.repeat(np.arange(40), 6)
    marked = draw.random(240) < 0.3
    values = draw.random(40)[groups] + 0.2 * marked + draw.normal(size=240)
    found = variance.marked_effect(values, marked, groups)
    dummies = (groups[:, None] == np.arange(40)[None, :]).astype(float)
    both = [group for group in range(40) if 0 < marked[groups == group].sum() < 6]
    kept = np.isin(groups, both)
    fit = sm.OLS(values[kept], np.column_stack([marked[kept], dummies[kept][:, both]]).astype(float)).fit(
        cov_type="cluster", cov_kwds={"groups": groups[kept], "use_correction": False}, use_t=True
    )
    error = fit.bse[0] * np.sqrt(len(both) / (len(both) - 1))
    half = (found.interval.high - found.interval.low) / 2
    assert (found.groups, found.is_within) == (len(both), True)
    assert found.difference == pytest.approx(fit.params[0])
    assert half == pytest.approx(stats.t.isf(0.025, len(both) - 1) * error)
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(fit.params[0]) / error, len(both) - 1))


def test_the_marked_effect_compares_within_groups_so_that_hard_ones_do_not_count_twice():
    # of three examples, the hard one needs retries more often; within an example the mark changes nothing
    groups = np.repeat([0, 1, 2], 4)
    marked = np.array([1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0], dtype=bool)
    values = np.array([1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1], dtype=float)
    found = variance.marked_effect(values, marked, groups)
    # weights 3/4 each; differences 0, 0, -1
    assert found.difference == pytest.approx(-1 / 3)


def test_the_marked_effect_of_one_rollout_an_example_compares_all_with_all_and_of_no_mark_says_nothing():
    values, marked = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), np.array([True, True, False, False, False, False])
    found = variance.marked_effect(values, marked, np.arange(6))
    assert (found.is_within, found.difference, found.p_value) == (False, pytest.approx(0.0), pytest.approx(1.0))
    assert variance.marked_effect(values, marked & False, np.arange(6)) is None
    assert variance.marked_effect(np.array([]), np.array([], dtype=bool), np.array([], dtype=int)) is None
