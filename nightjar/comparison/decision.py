"""Whether a candidate is worse by more than it may be: non-inferiority, by an interval of the difference."""

from __future__ import annotations

from math import ceil, isfinite, sqrt
from typing import NamedTuple

from scipy import special

from nightjar.comparison.records import Decision, Difference, Direction, Terms
from nightjar.stats.estimates import Estimate
from nightjar.stats.intervals import Interval, chance_of_unseen, pairs_needed, t_interval, unseen_share

_ROUNDING = 1e-12


class _Words(NamedTuple):
    worse: str
    better: str
    worsen: str
    worsened: str


_WORDS = {
    "higher": _Words("lower", "higher", "drop", "dropped"),
    "lower": _Words("higher", "lower", "rise", "risen"),
}


def decide(difference: Difference, max_drop: float, direction: Direction = "higher") -> Decision:
    """Returns what an interval of the difference says of a limit.

    An improvement is never a regression, and what is not known well enough passes nothing (Wellek, "Testing Statistical
    Hypotheses of Equivalence and Noninferiority", 2010, chapter 1).
    """
    damage = damage_of(difference.interval, direction)
    if damage.high <= max_drop:
        return "PASS"
    return "REGRESSION" if damage.low > max_drop else "INCONCLUSIVE"


def damage_of(interval: Interval, direction: Direction) -> Interval:
    """Returns how much worse the candidate is, of how much higher it is."""
    return interval if direction == "lower" else Interval(-interval.high, -interval.low)


def damage_if_failed_wrong(difference: Difference, direction: Direction) -> float:
    """Returns how much worse the candidate may be, were all that failed in it wrong: the end of an interval."""
    return damage_of(difference.interval_if_failed_wrong, direction).high


def chance_of_damage(difference: Difference, terms: Terms) -> float:
    """Returns the chance of so much damage, were it ``max_drop`` in truth: a one-sided p-value.

    It is below half of alpha just where the lower end of the interval of the damage is beyond that.

    Args:
        difference: with an interval made with the alpha of the terms.
        terms: what may be lost.
    """
    damage = damage_of(difference.interval, terms.direction)
    half, middle = (damage.high - damage.low) / 2, (damage.high + damage.low) / 2
    if difference.clusters < 2 or not isfinite(half):  # noqa: PLR2004 - a spread needs two
        return 1.0
    if difference.stderr is not None and difference.stderr <= _ROUNDING and difference.p_mcnemar is None:
        span = half / unseen_share(difference.clusters, terms.alpha)
        return chance_of_unseen((middle - terms.max_drop) / span, difference.clusters)
    stderr = half / t_interval(Estimate(0.0, 1.0), difference.clusters, terms.alpha).high
    return float(special.stdtr(difference.clusters - 1, (terms.max_drop - middle) / stderr))


def needed(difference: Difference, pairs: int, terms: Terms) -> int | None:
    """Returns how many pairs would decide it four times in five, if the difference is what it seems.

    Where all pairs are equal, what was not seen shrinks with their number.

    Returns:
        More than there are; None where one pair says nothing of the spread, or the difference is just the limit.
    """
    half = (difference.interval.high - difference.interval.low) / 2
    if difference.clusters < 2 or not isfinite(half):  # noqa: PLR2004 - a spread needs two
        return None
    if difference.is_identical:
        return max(ceil(pairs * half / terms.max_drop), pairs + 1) if terms.max_drop else None
    stderr = half / t_interval(Estimate(0.0, 1.0), difference.clusters, terms.alpha).high
    gap = terms.max_drop - _damage(difference.mean, terms.direction)
    count = pairs_needed(stderr * sqrt(pairs), gap, terms.alpha)
    return max(ceil(count), pairs + 1) if isfinite(count) else None


def reason(decision: Decision, difference: Difference, pairs: int, terms: Terms, more: int | None) -> str:
    """Returns why, in a sentence.

    Args:
        decision, difference: as they were found.
        pairs: how many there are.
        terms: as they were given.
        more: what ``needed`` returned.
    """
    damage, words = damage_of(difference.interval, terms.direction), _WORDS[terms.direction]
    what, limit = f"The mean {terms.metric}", f"the {terms.max_drop:g} that it may {words.worsen}"
    if decision == "REGRESSION":
        return f"{what} is {words.worse} by at least {damage.low:.4f}: more than {limit}."
    if difference.is_identical:
        told = f"{what} is identical in all {pairs:,} pairs; what was not asked may differ by up to {damage.high:.4f}: "
        told += f"within {limit}" if decision == "PASS" else f"more than {limit}{_more(more)}"
    elif decision == "INCONCLUSIVE":
        told = f"{what} may have {words.worsened} by less or more than {terms.max_drop:g}"
        told += _more(more) or ": more are needed"
    elif damage.high < 0:
        told = f"{what} is {words.better} by at least {-damage.high:.4f}"
    else:
        told = f"{what} is {words.worse} by at most {damage.high:.4f}: within {limit}"
    return f"{told}.{_unless_failed(difference, terms) if decision == 'PASS' else ''}"


def _more(more: int | None) -> str:
    return f": about {more:,} examples would decide it, if the difference is what it seems" if more else ""


def _unless_failed(difference: Difference, terms: Terms) -> str:
    """Says where a PASS rests on rollouts that failed having been no worse than the others."""
    if damage_if_failed_wrong(difference, terms.direction) <= terms.max_drop:
        return ""
    return f" Were all that failed in it wrong, it would be {difference.if_failed_wrong:+.4f}."


def _damage(difference: float, direction: Direction) -> float:
    return difference if direction == "lower" else -difference
