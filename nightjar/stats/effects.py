"""What a mark on some of the values goes with, within the groups that they come in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from nightjar.stats.estimates import Estimate
from nightjar.stats.intervals import Interval, t_interval


@dataclass(frozen=True)
class Effect:
    """How much higher the marked values are than the others.

    Attributes:
        difference: the mean of it.
        interval: of the mean, Student's t with clusters − 1 degrees of freedom.
        p_value: two-sided; the chance of a difference as large where the mark means nothing.
        groups: how many the difference is from.
        is_within: whether marked and unmarked values of the same group were compared; otherwise all with all, so that
            the marked ones may just be of groups that are harder.
    """

    difference: float
    interval: Interval
    p_value: float
    groups: int
    is_within: bool


def marked_effect(
    values: NDArray[np.float64], marked: NDArray[np.bool_], groups: NDArray[np.int64], alpha: float = 0.05
) -> Effect | None:
    """Returns what a mark goes with: the least-squares coefficient of it, with a mean of its own for every group.

    The error is clustered by group, with the factor G/(G-1) for the G groups that have both (Cameron and Miller, "A
    Practitioner's Guide to Cluster-Robust Inference", 2015, section III). Where fewer than two groups have both, all
    groups have one mean together.

    Args:
        values: one each.
        marked: whether it bears the mark.
        groups: a number for the group of each.
        alpha: the chance that the interval misses, over many.

    Returns:
        None where no value is marked, or all are, or nothing can be said of the error.
    """
    both = _with_both(marked, groups)
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


def _with_both(marked: NDArray[np.bool_], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.intersect1d(groups[marked], groups[~marked])


def _centred(values: NDArray[np.float64], strata: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the values minus the mean of their stratum."""
    means: NDArray[np.float64] = np.bincount(strata, values) / np.bincount(strata)
    return values - means[strata]
