"""Confidence intervals of means, shares and differences of shares.

In the long run, they miss the true value with chance ``alpha``. The functions use SciPy's special functions, because
SciPy's distributions take two seconds to import.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isclose, sqrt

import numpy as np
from scipy import special

from nightjar.statistics.estimates import Estimate

_RESAMPLES = 9_999
_AT_A_TIME = 5_000_000
"""The number of values resampled at once, which take 80 MB."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """The ends of an interval. They are infinite if nothing is known."""

    low: float
    high: float


_UNKNOWN = Interval(-np.inf, np.inf)


def t_interval(estimate: Estimate, clusters: int, alpha: float = 0.05) -> Interval:
    """Returns the two-sided interval of a mean, from Student's t with clusters − 1 degrees of freedom.

    With few clusters the normal quantile, as in Miller (2024), is too narrow (Cameron and Miller, "A Practitioner's
    Guide to Cluster-Robust Inference", 2015, section VI.D).
    """
    if estimate.mean is None or estimate.stderr is None:
        return Interval(-np.inf, np.inf)
    half = -float(special.stdtrit(clusters - 1, alpha / 2)) * estimate.stderr
    return Interval(estimate.mean - half, estimate.mean + half)


def mean_interval(estimate: Estimate, clusters: int, alpha: float, span: float) -> Interval:
    """Returns ``t_interval``, widened for unseen examples if all clusters are equal.

    ``span`` is the best possible value minus the worst.
    """
    interval = t_interval(estimate, clusters, alpha)
    if estimate.stderr is None or estimate.stderr > _ROUNDING:
        return interval
    more = unseen_share(clusters, alpha) * span
    return Interval(interval.low - more, interval.high + more)


@dataclass(frozen=True)
class MeanSummary:
    """What the interval of a mean needs to know of its values. ``lowest`` and ``highest`` are None if unknown.

    ``clusters`` counts the groups of dependent values: the examples of a run, unless the user names other groups.
    """

    estimate: Estimate
    values: int
    clusters: int
    lowest: float | None
    highest: float | None

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and highest possible value: 0 and 1, or observed values beyond this range."""
        seen = (self.estimate.mean, self.lowest, self.highest)
        return reward_range(value for value in seen if value is not None)

    @property
    def is_share(self) -> bool:
        """Whether each cluster has one value, 0 or 1.

        The variance of values between 0 and 1 is largest if no value is between: then it is that of a share.
        """
        mean, stderr = self.estimate.mean, self.estimate.stderr
        if mean is None or self.values != self.clusters or self.span != (0.0, 1.0):
            return False
        if self.clusters == 1:
            return mean in {0.0, 1.0}
        return stderr is not None and isclose(stderr**2 * (self.clusters - 1), mean * (1 - mean), abs_tol=_ROUNDING)


def interval_of(found: MeanSummary, alpha: float = 0.05) -> tuple[Interval, str]:
    """Returns the interval of a mean that is shown everywhere, and the name of the method.

    Wilson's interval for a share of independent examples, and else Student's t by cluster, cut to the possible range.
    If all clusters are equal, the interval allows for unseen examples. Outside of 0 to 1 these could have any value.
    """
    if found.is_share:
        assert found.estimate.mean is not None, "it is a share"
        return wilson(round(found.estimate.mean * found.values), found.values, alpha), "Wilson"
    is_bounded = found.span == (0.0, 1.0)
    is_constant = found.estimate.stderr is not None and found.estimate.stderr <= _ROUNDING
    interval = mean_interval(found.estimate, found.clusters, alpha, span=1.0)
    shown = within_rewards(interval, found.span) if is_bounded or not is_constant else _UNKNOWN
    return shown, "Student's t, by cluster"


def wilson(successes: int, trials: int, alpha: float = 0.05) -> Interval:
    """Returns the interval of a share of trials (Wilson, "Probable Inference", 1927); 0 to 1 without trials."""
    if not trials:
        return Interval(0.0, 1.0)
    z = -float(special.ndtri(alpha / 2))
    middle = (successes + z**2 / 2) / (trials + z**2)
    half = z / (trials + z**2) * sqrt(successes * (trials - successes) / trials + z**2 / 4)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def clopper_pearson(successes: int, trials: int, alpha: float = 0.05) -> Interval:
    """Returns the exact interval of a share of independent trials (Clopper and Pearson, 1934); 0 to 1 without trials.

    The interval never misses more often than alpha, and so is wider than Wilson's.
    """
    failures = trials - successes
    low = float(special.betaincinv(successes, failures + 1, alpha / 2)) if successes else 0.0
    high = float(special.betaincinv(successes + 1, failures, 1 - alpha / 2)) if failures else 1.0
    return Interval(low, high)


def cluster_bootstrap(
    groups: Iterable[Sequence[float]], alpha: float = 0.05, *, seed: int | None = 0, resamples: int = _RESAMPLES
) -> Interval:
    """Returns the bootstrap interval of the mean over all values, for skewed values. Equal means give infinite ends.

    Bias-corrected and accelerated (Efron, "Better Bootstrap Confidence Intervals", 1987), with whole groups drawn
    (Cameron, Gelbach and Miller, "Bootstrap-Based Improvements for Inference with Clustered Errors", 2008). Time and
    memory grow with the square of the number of groups. ``seed=None`` draws differently each time.
    """
    sums = np.array([(sum(group), len(group)) for group in groups if group], dtype=float).reshape(-1, 2)
    if len(sums) < 2 or np.ptp(sums[:, 0] / sums[:, 1]) == 0:  # noqa: PLR2004 - a spread needs two
        return Interval(-np.inf, np.inf)
    from scipy import stats

    found = stats.bootstrap(
        (sums[:, 0], sums[:, 1]),
        lambda total, size, axis: total.sum(axis=axis) / size.sum(axis=axis),
        paired=True,
        n_resamples=resamples,
        batch=_AT_A_TIME // len(sums) or 1,
        confidence_level=1 - alpha,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def paired_shares(gained: int, lost: int, pairs: int, alpha: float = 0.05) -> Interval:
    """Returns the interval of the difference of two shares over the same pairs. Each side of a pair is right or wrong.

    Bonett and Price, "Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired Data"
    (2012), with Student's quantile. It is the interval of the mean difference after adding one gained pair (only the
    second side is right) and one lost pair.
    """
    if pairs < 2:  # noqa: PLR2004 - one degree of freedom
        return Interval(-1.0, 1.0)
    up, down = (gained + 1) / (pairs + 2), (lost + 1) / (pairs + 2)
    half = -float(special.stdtrit(pairs - 1, alpha / 2)) * sqrt((up + down - (up - down) ** 2) / (pairs + 2))
    return Interval(max(-1.0, up - down - half), min(1.0, up - down + half))


def reward_range(values: Iterable[float]) -> tuple[float, float]:
    """Returns the lowest and highest possible reward: 0 and 1, or observed values beyond this range."""
    seen = [0.0, 1.0, *values]
    return min(seen), max(seen)


def within_rewards(interval: Interval, values: Iterable[float]) -> Interval:
    """Returns an interval of a mean reward, cut to ``reward_range``. An infinite interval stays unchanged."""
    lowest, highest = reward_range(values)
    is_known = np.isfinite(interval.low) and np.isfinite(interval.high)
    return Interval(max(interval.low, lowest), min(interval.high, highest)) if is_known else interval


def unseen_share(trials: int, alpha: float = 0.05) -> float:
    """Returns the largest plausible share of a kind of result that was never seen in ``trials`` trials.

    The upper end of Clopper and Pearson's interval for no success: 1 − (α/2)^(1/n), about 3.7 / n at α = 0.05 (Hanley
    and Lippman-Hand, "If Nothing Goes Wrong, Is Everything All Right?", 1983, for the one-sided 3 / n).
    """
    return clopper_pearson(0, trials, alpha).high


def chance_of_unseen(share: float, trials: int) -> float:
    """Returns the chance that no trial has a kind of result with this share. The inverse of ``unseen_share``."""
    return float((1 - min(1.0, max(0.0, share))) ** trials)


def mcnemar(gained: int, lost: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test. Without changed pairs, it is 1.

    If nothing changed, a pair that differs is as likely gained as lost (McNemar, "Note on the Sampling Error of the
    Difference between Correlated Proportions", 1947; exact as the binomial test of Cochran, 1950).
    """
    return min(1.0, 2 * float(special.bdtr(min(gained, lost), gained + lost, 0.5))) if gained + lost else 1.0


def pairs_needed(deviation: float, gap: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Returns how many pairs distinguish a mean difference from a limit at distance ``gap``; infinite for ``gap`` 0.

    The normal approximation for a paired mean (Cohen, "Statistical Power Analysis", 1988, section 2.3); ``deviation``
    is the standard deviation of a pair's difference.
    """
    if not gap:
        return np.inf
    return float(((special.ndtri(power) - special.ndtri(alpha / 2)) * deviation / gap) ** 2)
