"""``nightjar.compat.nemo.metrics``: values worked out by hand, by SciPy's distributions, or published."""

from math import inf, sqrt

import pytest
from late import late

np, stats, metrics = late("numpy", "scipy.stats", "nightjar.compat.nemo.metrics")
Z, T3 = 1.959963985, 3.182446305  # quantiles of 0.975: normal, Student's t with 3 degrees of freedom


def test_the_normal_interval():
    found = metrics.normal_ci([1.0, 2.0, 3.0, 4.0])
    se = sqrt(5 / 3) / 2  # s² = (1.5² + 0.5² + 0.5² + 1.5²) / 3
    assert (found.mean, found.se, found.method) == (2.5, pytest.approx(se), "normal")
    assert (found.ci_lower, found.ci_upper) == (pytest.approx(2.5 - Z * se), pytest.approx(2.5 + Z * se))
    alone = metrics.normal_ci([1.0])
    assert (alone.ci_lower, alone.ci_upper, alone.se) == (-inf, inf, None)
    with pytest.raises(ValueError, match="empty list of scores"):
        metrics.normal_ci([])


def test_repeats_do_not_narrow_the_clustered_interval():
    once = metrics.clustered_ci([0.0, 1.0, 0.5, 0.7], ["a", "b", "c", "d"])
    often = metrics.clustered_ci([0.0, 1.0, 0.5, 0.7] * 9, ["a", "b", "c", "d"] * 9)
    deviation = sqrt((0.55**2 + 0.45**2 + 0.05**2 + 0.15**2) / 3) / 2
    for found in (once, often):
        assert found.mean == pytest.approx(0.55)
        assert found.se == pytest.approx(deviation)
        assert found.ci_upper == pytest.approx(0.55 + T3 * deviation)


def test_the_sample_level_interval_is_over_repeats():
    # two problems, 4 times each: 1 and 3 right; p(1 − p) / (n − 1) = 0.1875 / 3 each
    found = metrics.sample_level_ci([(4, 1), (4, 3)])
    assert found is not None
    assert (found.mean, found.se) == (0.5, pytest.approx(sqrt(2 * 0.0625) / 2))
    assert found.ci_lower == pytest.approx(0.5 - Z * sqrt(0.125) / 2)
    assert metrics.sample_level_ci([(4, 1), (1, 1)]) is None
    assert metrics.sample_level_ci([]) is None


def test_the_bootstrap_interval_agrees_with_scipy():
    scores = [*np.random.default_rng(3).exponential(size=40)]
    drawn = stats.bootstrap((scores,), np.mean, confidence_level=0.9, rng=np.random.default_rng(5))
    expected = drawn.confidence_interval
    found = metrics.bootstrap_ci(scores, 0.9)
    assert (found.ci_lower, found.ci_upper) == pytest.approx((expected.low, expected.high), abs=0.02)
    assert found == metrics.bootstrap_ci(scores, 0.9)
    sure = metrics.bootstrap_ci([1.0] * 5)
    assert (sure.ci_lower, sure.ci_upper) == (pytest.approx(5 / (5 + Z**2)), 1.0)  # Wilson's, not [1, 1]


def test_categories_need_not_be_in_the_first_row_and_intervals_are_within_the_range_of_rewards():
    rows = [{"problem_idx": 0, "reward": 1.0, "metadata": {}}, {"problem_idx": 1, "reward": None}]
    rows += [{"problem_idx": n, "reward": float(n % 2), "metadata": {"category": "odd"}} for n in (3, 4, 5)]
    [odd] = metrics.category_breakdown(rows)
    assert (odd.category, odd.n_samples, odd.mean_reward) == ("odd", 3, pytest.approx(2 / 3))
    assert (odd.ci.ci_lower, odd.ci.ci_upper) == pytest.approx((0.2077, 0.9385), abs=1e-4)  # Wilson's of 2 in 3
    rows = [{"problem_idx": n, "reward": n / 2 + 0.25, "metadata": {"category": "few"}} for n in (0, 1)]
    [few] = metrics.category_breakdown(rows)
    assert (few.ci.ci_lower, few.ci.ci_upper) == (0.0, 1.0)
    rows[1]["reward"] = 5.0
    [few] = metrics.category_breakdown(rows)
    assert (few.ci.ci_lower, few.ci.ci_upper) == (0.0, 5.0)


def test_scoring_details_with_a_few_values_are_categories():
    rows = [
        {"problem_idx": n, "reward": float(n < 2), "scoring_details": {"method": "ab"[n % 2], "n": n, "id": str(n)}}
        for n in range(4)
    ]
    found = metrics.scoring_details_breakdown([*rows, {"problem_idx": 9, "reward": None}], max_cardinality=3)
    assert {name: [(one.category, one.mean_reward) for one in each] for name, each in found.items()} == {
        "method": [("a", 0.5), ("b", 0.5)]
    }


def test_summary_statistics_ignore_missing_rewards():
    spread = {"mean": 2.0, "median": 2.0, "std": sqrt(2), "min": 1.0, "max": 3.0}
    assert metrics.summary_stats([1.0, None, 3.0]) == {"n": 2, **spread}
    assert metrics.summary_stats([None]) == {"n": 0}


def test_a_fractional_reward_does_not_change_the_names_of_scores():
    """In NeMo Evaluator a reward of 0.5 changes the names, and a single repeat has no interval."""
    for rewards in ({0: [1.0], 1: [0.0], 2: [1.0]}, {0: [1.0], 1: [0.5], 2: [None]}):
        found = metrics.headline_score_metrics(rewards, 1)
        assert set(found) == {"mean_reward", "pass@1"}
        assert found["pass@1"]["ci_lower"] is not None
    assert metrics.headline_score_metrics({0: [1.0, 0.0], 1: [0.0, 0.0]}, 2)["pass@2"]["value"] == 0.5
    assert (metrics.is_fractional([0, 1.0]), metrics.is_fractional([0.5])) == (False, True)


def test_pass_at_k():
    assert metrics.pass_at_k(10, 3, 2) == pytest.approx(1 - (7 * 6) / (10 * 9))
    assert metrics.aggregate_pass_at_k([(4, 0), (4, 1)], 2) == pytest.approx(0.25)
    for arguments in ((2, 1, 3), (2, 3, 1)):
        with pytest.raises(ValueError, match="must be between"):
            metrics.pass_at_k(*arguments)
    with pytest.raises(ValueError, match="empty list of problems"):
        metrics.aggregate_pass_at_k([], 1)


def test_mcnemar():
    counts = {"both_correct": 60, "baseline_only_correct": 12, "candidate_only_correct": 4, "both_wrong": 24}
    found = metrics.mcnemar_test(counts)
    assert found.p_value == pytest.approx(stats.binomtest(12, 16, 0.5, alternative="greater").pvalue)
    assert (found.significant, found.n_discordant, found.effect_size) == (True, 16, 0.08)
    # Bonett and Price (2012), by hand: 8/102 ± 1.984217 · √((18/102 − (8/102)²) / 102)
    assert (found.ci_lower, found.ci_upper) == pytest.approx((-0.0026499, 0.1595127), abs=1e-6)
    # only better: no sign of damage
    better = metrics.mcnemar_test({"baseline_only_correct": 0, "candidate_only_correct": 60}, 200)
    assert (better.p_value, better.significant, better.effect_size) == (1.0, False, -0.3)
    assert metrics.mcnemar_test({}).to_dict()["p_value"] == 1.0


def test_the_sign_test():
    found = metrics.sign_test([0.2] * 9 + [-0.1] * 3 + [0.0] * 5)
    assert (found.n_positive, found.n_negative, found.n_ties) == (9, 3, 5)
    assert found.p_value == pytest.approx(stats.binomtest(9, 12, 0.5, alternative="greater").pvalue)
    assert metrics.sign_test([]).p_value == 1.0


def test_the_permutation_test():
    deltas = [0.3, 0.4, -0.1, 0.2, 0.5, 0.1, -0.2, 0.6]
    signs = np.array(np.meshgrid(*[[1, -1]] * 8)).reshape(8, -1)
    exact = float(((signs.T * deltas).sum(axis=1) >= sum(deltas) - 1e-9).mean())  # all 256 sign flips
    found = metrics.permutation_test(deltas)
    assert found.p_value == pytest.approx(exact, abs=0.01)
    assert found.effect_size == pytest.approx(0.225 / np.std(deltas, ddof=1))
    assert metrics.permutation_test([-delta for delta in deltas]).p_value > 0.9
    assert metrics.permutation_test([]).p_value == metrics.permutation_test([0.0, 0.0]).p_value == 1.0


def test_the_test_is_chosen_by_paired_rewards():
    zero, half, broke = {"reward": 0.0}, {"reward": 0.5}, {"reward": None}
    assert metrics.detect_test({(0, 0): zero, (1, 0): half}, {(0, 0): zero, (2, 0): half}) == "mcnemar"
    assert metrics.detect_test({(0, 0): zero, (1, 0): broke}, {(0, 0): half, (1, 0): zero}) == "permutation"
    assert (metrics.mde_estimate(784), metrics.mde_estimate(0)) == (pytest.approx(0.1), inf)
