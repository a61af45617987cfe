"""How many examples and rollouts: against statsmodels, values worked by hand, and by simulation."""

import pytest
from late import late

from nightjar.statistics import clustered_mean

np, stats, planning, intervals = late(
    "numpy", "scipy.stats", "nightjar.statistics.planning", "nightjar.statistics.intervals"
)


@pytest.mark.slow
@pytest.mark.parametrize(("deviation", "drop", "alpha", "power"), [(0.5, 0.05, 0.05, 0.8), (0.4, 0.1, 0.01, 0.9)])
def test_examples_and_drop_are_those_of_statsmodels(deviation, drop, alpha, power):
    from statsmodels.stats.power import TTestPower

    needed = TTestPower().solve_power(drop / deviation, None, alpha / 2, power, alternative="larger")
    assert planning.examples_needed(deviation, drop, alpha, power) == np.ceil(needed)
    size = TTestPower().solve_power(None, 200, alpha / 2, power, alternative="larger")
    assert planning.smallest_drop(deviation, 200, alpha, power) == pytest.approx(size * deviation, rel=1e-4)


def test_examples_are_those_of_cohen_and_rollouts_by_hand():
    # Cohen (1988), table 2.4.1 for two samples halves for pairs: d = 0.5, two-sided 0.05, power 0.8: 34 pairs
    assert planning.examples_needed(1.0, 0.5) == 34
    # a drop of 0.15 × what is shown with a deviation of 1: 0.01 + 0.04 / r <= 0.15^2 where r >= 3.2
    spread, shown = planning.Spread(difference=0.01, within=0.04), planning.smallest_drop(1.0, 50)
    assert spread.deviation(4) == pytest.approx(0.02**0.5)
    assert planning.rollouts_needed(spread, 0.15 * shown, 50) == 4
    assert planning.rollouts_needed(spread, 0.09 * shown, 50) is None
    assert planning.rollouts_needed(planning.Spread(0.0, 0.0), 0.1, 50) == 1


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", [1, 4])
def test_the_power_is_reached_by_runs_that_are_made_up(rollouts):
    draw, drop, tries = np.random.default_rng(0), 0.08, 500
    right = draw.beta(2, 1, size=100_000)
    broken = right * (1 - drop / right.mean())
    within = (right * (1 - right) + broken * (1 - broken)).mean()
    spread = planning.Spread(difference=float((right - broken).var()), within=float(within))
    examples, shown = planning.examples_needed(spread.deviation(rollouts), drop), 0
    for _ in range(tries):
        chosen = draw.integers(len(right), size=examples)
        before, after = (draw.binomial(rollouts, chances[chosen]) / rollouts for chances in (right, broken))
        shown += intervals.t_interval(clustered_mean([[value] for value in after - before]), examples).high < 0
    low, high = stats.binom.ppf([0.001, 0.999], tries, 0.8)
    assert low <= shown <= high
