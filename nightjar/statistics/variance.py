"""Values in groups: variance between and within groups, and the effect of a mark on some of the values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy import special

from nightjar.statistics.estimates import Estimate
from nightjar.statistics.intervals import Interval, t_interval


@dataclass(frozen=True)
class Components:
    """The variances of the examples' true means (``between``) and of an example's rollouts (``within``).

    They add up to the variance of a reward. Both are None if no example has two rollouts. ``between`` needs two
    examples.
    """

    between: float | None
    within: float | None

    @property
    def shared(self) -> float | None:
        """The share of the variance between examples (intraclass correlation), 0 to 1; None if there is no variance."""
        if self.between is None or self.within is None or not self.between + self.within:
            return None
        return self.between / (self.between + self.within)


def variance_components(groups: Iterable[Sequence[float]]) -> Components:
    """Returns the variances between and within groups, from a one-way analysis of variance. Empty groups do not count.

    The estimators of Searle, Casella and McCulloch, "Variance Components" (1992), section 3.6, for groups of unequal
    size. A negative variance between groups becomes 0.
    """
    there = [group for group in groups if len(group)]
    labels = np.repeat(np.arange(len(there)), [len(group) for group in there])
    return labelled_components(np.array([*chain.from_iterable(there)], dtype=float), labels)


def labelled_components(values: NDArray[np.float64], labels: NDArray[np.int64]) -> Components:
    """Returns ``variance_components`` of values, given the number of each value's group."""
    counts = np.bincount(labels)
    sizes = counts[counts > 0].astype(float)
    spare = sizes.sum() - len(sizes)
    if not spare:
        return Components(None, None)
    means = np.bincount(labels, values)[counts > 0] / sizes
    within = float((_centred(values, labels) ** 2).sum() / spare)
    if len(sizes) < 2:  # noqa: PLR2004 - a spread needs two
        return Components(None, within)
    mean = (sizes * means).sum() / sizes.sum()
    mean_square = float((sizes * (means - mean) ** 2).sum() / (len(sizes) - 1))
    usual_size = float((sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(sizes) - 1))
    return Components(max(0.0, (mean_square - within) / usual_size), within)


@dataclass(frozen=True)
class Effect:
    """How much higher the marked values are than the others. The interval is Student's; the p-value is two-sided.

    With ``is_within``, values of the same group are compared. Otherwise the marked values may belong to harder groups.
    """

    difference: float
    interval: Interval
    p_value: float
    groups: int
    is_within: bool


def marked_effect(
    values: NDArray[np.float64], marked: NDArray[np.bool_], groups: NDArray[np.int64], alpha: float = 0.05
) -> Effect | None:
    """Returns the effect of a mark on values: its least-squares coefficient, with a mean for every group.

    The error is clustered by group, with the factor G/(G-1) for the G groups that have marked and other values (Cameron
    and Miller, "A Practitioner's Guide to Cluster-Robust Inference", 2015, section III). With fewer than two such
    groups, all groups share one mean. Returns None if all values or no values are marked, or if the error cannot be
    estimated.
    """
    both = np.intersect1d(groups[marked], groups[~marked])
    is_within = len(both) > 1
    if is_within:
        chosen = np.isin(groups, both)
        values, marked, groups = values[chosen], marked[chosen], groups[chosen]
    labels = np.unique(groups, return_inverse=True)[1]
    strata = labels if is_within else np.zeros_like(labels)
    response, treatment = _centred(values, strata), _centred(marked.astype(float), strata)
    weight = float((treatment**2).sum())
    count = len(np.unique(labels))
    if weight <= 0 or count < 2:  # noqa: PLR2004 - a spread needs two
        return None
    difference = float((treatment * response).sum()) / weight
    scores = np.bincount(labels, treatment * (response - difference * treatment))
    stderr = float(np.sqrt((scores**2).sum() * count / (count - 1))) / weight
    if not stderr:
        return None
    p_value = float(2 * special.stdtr(count - 1, -abs(difference) / stderr))
    return Effect(difference, t_interval(Estimate(difference, stderr), count, alpha), p_value, count, is_within)


def _centred(values: NDArray[np.float64], strata: NDArray[np.int64]) -> NDArray[np.float64]:
    means: NDArray[np.float64] = np.bincount(strata, values) / np.maximum(1, np.bincount(strata))
    return values - means[strata]
