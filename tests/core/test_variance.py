"""Variance components and marked effects, against a textbook, statsmodels and values worked by hand."""

import numpy as np
import pytest
from scipy import stats

from nightjar.statistics.variance import Components, marked_effect, variance_components

LOOMS = [[98, 97, 99, 96], [91, 90, 93, 92], [96, 95, 97, 95], [95, 96, 99, 98]]
"""Strength of fabric of four looms: Montgomery, "Design and Analysis of Experiments", example 3.11 (8th edition)."""


class TestVarianceComponents:
    def test_are_those_of_montgomery(self):
        found = variance_components(LOOMS)
        assert found.within == pytest.approx(1.90, abs=5e-3)
        assert found.between == pytest.approx(6.96, abs=5e-3)
        assert found.shared == pytest.approx(6.96 / 8.86, abs=1e-3)  # "about 79 percent"

    def test_of_groups_of_unequal_size_by_hand(self):
        # means 1/2, 1, 0; within (1/2 + 0 + 0) / 3; mean of all 2/3; squares 2/36 + 3/9 + 4/9 = 5/6, by two: 5/12;
        # usual size (6 - 14/6) / 2 = 11/6: between (5/12 - 1/6) / (11/6) = 3/22
        found = variance_components([[1.0, 0.0], [1.0, 1.0, 1.0], [0.0], []])
        assert (found.between, found.within) == (pytest.approx(3 / 22), pytest.approx(1 / 6))

    def test_is_never_below_zero_and_unknown_with_one_rollout_an_example(self):
        assert variance_components([[1.0, 0.0], [0.0, 1.0]]) == Components(0.0, 0.5)
        assert variance_components([[1.0], [0.0]]) == Components(None, None)
        assert variance_components([[1.0, 0.0]]) == Components(None, 0.5)
        assert variance_components([]).shared is None


class TestMarkedEffect:
    @pytest.mark.slow
    def test_is_that_of_a_regression_with_fixed_effects_and_clustered_errors(self):
        import statsmodels.api as sm

        draw = np.random.default_rng(3)
        groups = np.repeat(np.arange(40), 6)
        marked = draw.random(240) < 0.3
        values = draw.random(40)[groups] + 0.2 * marked + draw.normal(size=240)
        found = marked_effect(values, marked, groups)
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

    def test_compares_within_groups_so_that_hard_ones_do_not_count_twice(self):
        # of three examples, the hard one needs retries more often; within an example the mark changes nothing
        groups = np.repeat([0, 1, 2], 4)
        marked = np.array([1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0], dtype=bool)
        values = np.array([1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1], dtype=float)
        found = marked_effect(values, marked, groups)
        # weights 3/4 each; differences 0, 0, -1
        assert found.difference == pytest.approx(-1 / 3)

    def test_of_one_rollout_an_example_compares_all_with_all(self):
        values, marked = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), np.array([True, True, False, False, False, False])
        found = marked_effect(values, marked, np.arange(6))
        assert not found.is_within
        assert found.difference == pytest.approx(0.0)
        assert found.p_value == pytest.approx(1.0)

    def test_of_no_mark_says_nothing(self):
        assert marked_effect(np.array([1.0, 0.0]), np.array([False, False]), np.arange(2)) is None
        assert marked_effect(np.array([]), np.array([], dtype=bool), np.array([], dtype=int)) is None
