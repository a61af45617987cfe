"""Whether a candidate is worse by more than it may be: non-inferiority, by an interval of the difference."""

from __future__ import annotations

from math import ceil, isfinite, sqrt

from nightjar.comparison.records import Decision, Difference
from nightjar.stats.estimates import Estimate
from nightjar.stats.intervals import pairs_needed, t_interval


def decide(difference: Difference, max_drop: float) -> Decision:
    """Returns what an interval of the difference says of a limit.

    An improvement is never a regression, and what is not known well enough passes nothing (Wellek, "Testing Statistical
    Hypotheses of Equivalence and Noninferiority", 2010, chapter 1).
    """
    if -difference.interval.low <= max_drop:
        return "PASS"
    return "REGRESSION" if -difference.interval.high > max_drop else "INCONCLUSIVE"


def needed(difference: Difference, pairs: int, max_drop: float, alpha: float) -> int | None:
    """Returns how many pairs would decide it four times in five, if the difference is what it seems.

    Returns:
        More than there are; None where one pair says nothing of the spread, or the difference is just the limit.
    """
    half = (difference.interval.high - difference.interval.low) / 2
    if difference.clusters < 2 or not isfinite(half):  # noqa: PLR2004 - a spread needs two
        return None
    stderr = half / t_interval(Estimate(0.0, 1.0), difference.clusters, alpha).high
    count = pairs_needed(stderr * sqrt(pairs), max_drop + difference.mean, alpha)
    return max(ceil(count), pairs + 1) if isfinite(count) else None


def reason(decision: Decision, difference: Difference, max_drop: float, more: int | None) -> str:
    """Returns why, in a sentence.

    Args:
        decision, difference, max_drop: as they were found.
        more: what ``needed`` returned.
    """
    lowest, highest = difference.interval.low, difference.interval.high
    if decision == "PASS":
        told = f"lower by at most {-lowest:.4f}: within the {max_drop:g} that it may drop"
        told = f"higher by at least {lowest:.4f}" if lowest > 0 else told
        return f"The mean reward is {told}.{_unless_failed(difference, max_drop)}"
    if decision == "REGRESSION":
        return f"The mean reward is lower by at least {-highest:.4f}: more than the {max_drop:g} that it may drop."
    told = f"about {more:,} examples would decide it, if the difference is what it seems" if more else "more are needed"
    return f"The mean reward may have dropped by less or more than {max_drop:g}: {told}."


def _unless_failed(difference: Difference, max_drop: float) -> str:
    """Says where a PASS rests on rollouts that failed having been no worse than the others."""
    if -difference.if_failed_wrong <= max_drop:
        return ""
    return f" Were all that failed in it wrong, it would be {difference.if_failed_wrong:+.4f}."
