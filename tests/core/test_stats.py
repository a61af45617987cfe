"""Statistics against enumeration, hand calculation and the standard library."""

import itertools
import math
import random
import statistics
from fractions import Fraction

import pytest

from nightjar.statistics import Estimate, clustered_mean, pass_all_k, pass_at_k, pass_curves


@pytest.mark.parametrize(("estimator", "holds"), [(pass_at_k, any), (pass_all_k, all)])
def test_estimators_are_the_share_of_draws_with_a_correct_one_or_that_are_all_correct(estimator, holds):
    """Looks at every way to draw k of n rollouts, as Chen et al. (2021) define the estimator."""
    for n, correct, k in (
        case for case in itertools.product(range(1, 7), range(7), range(1, 7)) if max(case) == case[0]
    ):
        draws = list(itertools.combinations([True] * correct + [False] * (n - correct), k))
        share = Fraction(sum(holds(draw) for draw in draws), len(draws))
        assert estimator(n, correct, k) == pytest.approx(float(share)), (n, correct, k)


def test_k_must_be_1_to_n_and_many_rollouts_do_not_overflow():
    for estimator, k in itertools.product((pass_at_k, pass_all_k), (0, -1, 4)):
        with pytest.raises(ValueError, match=f"k must be between 1 and n = 3, found {k}"):
            estimator(3, 1, k)
    # Chen et al.'s stable form: 1 - prod(1 - k / i for i in n-c+1 .. n)
    stable = 1 - math.prod(1 - 100 / i for i in range(2000 - 30 + 1, 2001))
    assert pass_at_k(2000, 30, 100) == pytest.approx(stable)


def test_k_runs_over_powers_of_two_up_to_n_and_shares_are_means_over_examples():
    at_k, all_k = pass_curves([2], 6)
    assert list(at_k) == list(all_k) == list(pass_curves([2], 4)[0]) == [1, 2, 4]
    # n = 3, correct 0, 1, 3. pass@2: 0, 1 - C(2,2)/C(3,2) = 2/3, 1. pass^2: 0, 0, 1.
    at_k, all_k = pass_curves([0, 1, 3], 3)
    assert at_k == pytest.approx({1: 4 / 9, 2: 5 / 9})
    assert all_k == pytest.approx({1: 4 / 9, 2: 1 / 3})
    assert pass_curves([], 4) == ({}, {})


def test_the_clustered_mean_by_hand():
    for groups, mean, stderr in (
        ([[], []], None, None), ([[1.0, 0.0, 1.0, 1.0]], 0.75, None),
        # residuals of the sums: 2 - 2·2/3 = 2/3 and 0 - 2/3 = -2/3; squares add up to 8/9; times G/(G-1) = 2: 16/9;
        # root 4/3; by 3 values: 4/9
        ([[1.0, 1.0], [0.0]], pytest.approx(2 / 3), pytest.approx(4 / 9)),
        # sums 3, 0, 0 of sizes 3, 2, 1: residuals 3/2, -1, -1/2; squares 7/2; times 3/2 = 21/4; root √21/2; by 6
        ([[1.0, 1.0, 1.0], [0.0, 0.0], [0.0]], 0.5, pytest.approx(math.sqrt(21) / 12)),
        ([[1.0], [], [0.0]], 0.5, 0.5), ([[1.0, 0.0], [0.0, 1.0]], 0.5, 0.0),
    ):  # fmt: skip
        assert clustered_mean(groups) == Estimate(mean, stderr)


def test_one_value_a_group_is_the_ordinary_standard_error_and_copies_of_a_rollout_add_no_certainty():
    draw = random.Random(1)
    for size in range(2, 100):
        values = [draw.choice([draw.uniform(-100, 100), 0.0, 1.0, -1e-300]) for _ in range(size % 29 + 2)]
        once = clustered_mean([[value] for value in values])
        assert once.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
        assert once.stderr == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), rel=1e-6, abs=1e-9)
        copies = draw.randint(2, 5)
        many = clustered_mean([[value] * copies for value in values])
        assert many.stderr == pytest.approx(once.stderr, abs=1e-9)
