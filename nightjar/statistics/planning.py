"""Sample sizes: the examples and rollouts that a paired comparison of two runs needs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, sqrt

from scipy import optimize, stats

from nightjar.statistics.intervals import pairs_needed


@dataclass(frozen=True)
class Spread:
    """Variances of the difference of two runs over the examples.

    ``difference`` is the variance of the true difference. ``within`` is the sum of both runs' variances of one rollout.
    """

    difference: float
    within: float

    def deviation(self, rollouts: int) -> float:
        """Returns the standard deviation of an example's difference with this number of rollouts in each run.

        Miller, "Adding Error Bars to Evals" (2024), sections 3.1 and 4: rollouts reduce only the variance within.
        """
        return sqrt(self.difference + self.within / rollouts)


def paired_power(deviation: float, drop: float, pairs: int, alpha: float = 0.05) -> float:
    """Returns the chance that the two-sided t interval of a mean difference of ``-drop`` is entirely below 0.

    By the noncentral t distribution (Cohen, "Statistical Power Analysis", 1988, section 2.5); ``deviation`` is the
    standard deviation of a pair's difference.
    """
    if pairs < 2:  # noqa: PLR2004 - one degree of freedom
        return 0.0
    limit = stats.t.isf(alpha / 2, pairs - 1)
    return float(stats.nct.sf(limit, pairs - 1, drop * sqrt(pairs) / deviation))


def examples_needed(deviation: float, drop: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Returns the smallest number of pairs that detects a drop with this power.

    For the arguments, see ``paired_power``.
    """
    pairs = max(2, ceil(pairs_needed(deviation, drop, alpha, power)))
    while paired_power(deviation, drop, pairs, alpha) < power:
        pairs += 1
    return pairs


def smallest_drop(deviation: float, pairs: int, alpha: float = 0.05, power: float = 0.8) -> float:
    """Returns the smallest drop that this number of pairs detects with this power.

    It is infinite with fewer than two pairs.
    """
    if pairs < 2:  # noqa: PLR2004 - as above
        return inf
    half = (stats.t.isf(alpha / 2, pairs - 1) + stats.t.ppf(power, pairs - 1)) * deviation / sqrt(pairs)
    found = optimize.brentq(lambda drop: paired_power(deviation, drop, pairs, alpha) - power, half / 10, half * 10)
    return float(found)


def rollouts_needed(spread: Spread, drop: float, pairs: int, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Returns how many rollouts of each example are needed to detect a drop; None if no number is enough."""
    if not spread.difference and not spread.within:
        return 1
    shown = smallest_drop(1.0, pairs, alpha, power)
    room = (drop / shown) ** 2 - spread.difference
    return max(1, ceil(spread.within / room)) if room > 0 else None
