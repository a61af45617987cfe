"""Compares several means over the same examples: which means differ, and the possible ranks of each mean."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray
from scipy import special

from nightjar.statistics.change_points import Matrix

_DRAWS = 50_000


@dataclass(frozen=True)
class Simultaneous:
    """Intervals of several contrasts of means, which hold all at once. With one example, half-widths are infinite."""

    estimates: Matrix
    half_widths: Matrix

    @property
    def signs(self) -> NDArray[np.int64]:
        """For each contrast: 1 if its interval is above 0, -1 if it is below 0, else 0."""
        is_told: NDArray[np.bool_] = np.abs(self.estimates) > self.half_widths
        return np.where(is_told, np.sign(self.estimates), 0).astype(np.int64)


def simultaneous_intervals(
    values: Matrix, contrasts: Matrix, alpha: float = 0.05, *, span: float = 1.0, seed: int = 0
) -> Simultaneous:
    """Returns simultaneous intervals of contrasts (contrast × mean) of the means of ``values`` (mean × example).

    The single-step max-t intervals of Hothorn, Bretz and Westfall, "Simultaneous Inference in General Parametric
    Models" (2008): the simulated quantile of the largest statistic, with the correlation of the values; alpha is the
    chance that any interval misses. The error of a contrast is at least the error that a single example ``span`` away
    would cause. Otherwise, equal values would give no error, although nothing is known of unseen examples.
    """
    things = values.shape[1]
    estimates = contrasts @ values.mean(axis=1)
    if things < 2:  # noqa: PLR2004 - a spread needs two
        return Simultaneous(estimates, np.full(len(contrasts), np.inf))
    covariance = np.atleast_2d(np.cov(values))
    spreads, directions = np.linalg.eigh(covariance)
    errors = np.maximum(
        np.sqrt(np.einsum("ki,ij,kj->k", contrasts, covariance, contrasts).clip(0) / things), span / things
    )
    draw = np.random.default_rng(seed)
    loadings = contrasts @ (directions * np.sqrt(spreads.clip(0) / things)) / errors[:, None]
    normal = draw.standard_normal((_DRAWS, len(values)))
    scale = np.sqrt(draw.chisquare(things - 1, _DRAWS) / (things - 1))
    largest = np.zeros(_DRAWS)
    for loading in loadings:
        largest = np.maximum(largest, np.abs(normal @ loading))
    alone = -float(special.stdtrit(things - 1, alpha / 2))
    return Simultaneous(estimates, errors * max(alone, float(np.quantile(largest / scale, 1 - alpha))))


def pair_contrasts(means: int) -> Matrix:
    """Returns the contrasts of all pairs of means, in the order of ``itertools.combinations``."""
    found = np.zeros((means * (means - 1) // 2, means))
    for row, (one, other) in enumerate(combinations(range(means), 2)):
        found[row, one], found[row, other] = 1.0, -1.0
    return found


def better(signs: NDArray[np.int64], means: int) -> NDArray[np.bool_]:
    """Returns mean × mean: whether the first mean is better than the second, by the signs of ``pair_contrasts``."""
    found = np.zeros((means, means), dtype=bool)
    for sign, (one, other) in zip(signs, combinations(range(means), 2), strict=True):
        found[one, other], found[other, one] = sign > 0, sign < 0
    return found


def rank_sets(is_better: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Returns the best and worst possible rank of each mean, from ``better``. The ranks hold all at once.

    Mogstad, Romano, Shaikh and Wilhelm, "Inference for Ranks with Applications to Mobility across Neighbourhoods and
    Academic Achievement across Countries" (2024), section 3.
    """
    count = len(is_better)
    return [(1 + int(is_better[:, one].sum()), count - int(is_better[one].sum())) for one in range(count)]


def letters(is_better: NDArray[np.bool_]) -> list[str]:
    """Returns letters such that two means share a letter exactly if neither is better than the other.

    By insert and absorb: Piepho, "An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons" (2004).
    With the best mean first, the letters begin with it.
    """
    everything = range(len(is_better))
    groups = [frozenset(everything)]
    for one, other in combinations(everything, 2):
        if is_better[one, other] or is_better[other, one]:
            split = [group - {left} for group in groups for left in (one, other) if {one, other} <= group]
            kept = {group for group in groups if not {one, other} <= group} | set(split)
            groups = [group for group in kept if not any(group < wider for wider in kept)]
    names = (ascii_lowercase[n % 26] * (n // 26 + 1) for n in range(len(groups)))
    named = dict(zip(names, sorted(groups, key=sorted), strict=True))
    return ["".join(name for name, group in named.items() if one in group) for one in everything]
