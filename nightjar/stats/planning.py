"""How many examples and rollouts a paired comparison of two runs needs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, sqrt

from scipy import optimize, stats

from nightjar.stats.intervals import pairs_needed


@dataclass(frozen=True)
class Spread:
    """What the difference of two runs on an example varies by.

    Attributes:
        difference: variance over the examples of the true difference, over endlessly many rollouts.
        within: sum of both runs' variances of one rollout.
    """

    difference: float
    within: float

    def deviation(self, rollouts: int) -> float:
        """Returns the standard deviation of an example's difference with so many rollouts in each run.

        Miller, "Adding Error Bars to Evals" (2024), sections 3.1 and 4: rollouts make one part smaller alone.
        """
        return sqrt(self.difference + self.within / rollouts)


def paired_power(deviation: float, drop: float, pairs: int, alpha: float = 0.05) -> float:
    """Returns the chance that the two-sided t interval of a mean difference is all below 0.

    By the noncentral t distribution (Cohen, "Statistical Power Analysis", 1988, section 2.5).

    Args:
        deviation: standard deviation of a pair's difference.
        drop: how far the mean difference is below 0.
        pairs: how many.
        alpha: that of the interval.
    """
    if pairs < 2:  # noqa: PLR2004 - one degree of freedom
        return 0.0
    limit = stats.t.isf(alpha / 2, pairs - 1)
    return float(stats.nct.sf(limit, pairs - 1, drop * sqrt(pairs) / deviation))


def examples_needed(deviation: float, drop: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Returns the smallest number of pairs in which a drop is seen with so much power.

    Args:
        deviation, drop, alpha: as for ``paired_power``.
        power: the chance that it is seen.
    """
    pairs = max(2, ceil(pairs_needed(deviation, drop, alpha, power)))
    while paired_power(deviation, drop, pairs, alpha) < power:
        pairs += 1
    return pairs


def smallest_drop(deviation: float, pairs: int, alpha: float = 0.05, power: float = 0.8) -> float:
    """Returns the smallest drop that so many pairs show with so much power; infinite for fewer than two."""
    if pairs < 2:  # noqa: PLR2004 - as above
        return inf
    half = (stats.t.isf(alpha / 2, pairs - 1) + stats.t.ppf(power, pairs - 1)) * deviation / sqrt(pairs)
    found = optimize.brentq(lambda drop: paired_power(deviation, drop, pairs, alpha) - power, half / 10, half * 10)
    return float(found)


def rollouts_needed(spread: Spread, drop: float, pairs: int, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Returns how many rollouts of each of so many examples show a drop; None where no number of them does."""
    if not spread.difference and not spread.within:
        return 1
    shown = smallest_drop(1.0, pairs, alpha, power)
    room = (drop / shown) ** 2 - spread.difference
    return max(1, ceil(spread.within / room)) if room > 0 else None
