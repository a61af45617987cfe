"""Finds changes of the level in a series of runs over the same examples.

``values`` is run × example, in time order: the mean of an example's rollouts, or NaN without rollouts. ``counts`` is
the number of these rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy import special

Matrix = NDArray[np.float64]

_FEWEST_DRAWS, _MOST_DRAWS, _DRAWN = 2_000, 20_000, 200_000
"""The number of simulated series is chosen so that they have this many runs in all, within bounds."""
_QUANTILE = 0.75
"""The quantile of neighbours' differences that measures noise between runs. A few changes of level do not affect it."""
_OF_HALF_NORMAL = float(special.ndtri((1 + _QUANTILE) / 2))
_SHRINKAGE = 4.0
"""The number of differences at which an example's own variance weighs as much as the mean of all."""
_FEWEST = 4
"""The minimum number of differences between runs for an estimate of the extra noise between runs."""
_DECAY = 2**-0.5
_SURPRISING = 0.05
_SLACK = 7.35
"""For 95 % (Hansen, "Sample splitting and threshold estimation", 2000, table I)."""
_Scanned = list[tuple[int, Matrix]]


@dataclass(frozen=True)
class ChangePoint:
    """The first run with a new level. ``earliest`` and ``latest`` are the bounds of this run.

    ``statistic`` is the distance of the levels in standard errors, in the interval of runs with the change.
    """

    at: int
    earliest: int
    latest: int
    statistic: float


def change_points(values: Matrix, counts: Matrix, alpha: float = 0.01) -> list[ChangePoint]:
    """Returns the changes of the level in time order. Without a change, the chance of finding one is alpha.

    Every interval of a fixed set is split into before and after, and the values are regressed on example and side. The
    largest statistic is the first change, and each side is searched in the same way (binary segmentation with the
    intervals of Kovács, Bühlmann, Li and Munk, "Seeded binary segmentation", 2023, after Fryzlewicz, "Wild binary
    segmentation", 2014). The limit is simulated from normal values with as many rollouts per run. If neighbouring runs
    differ by more than their examples explain, a change must be larger by the same factor.
    """
    runs = len(values)
    noise = noise_variances(values, counts)
    if runs < 2 or not noise.sum():  # noqa: PLR2004 - a change has two sides
        return []
    scanned = [(low, split_statistics(values[low:high], counts[low:high], noise)[:, 0]) for low, high in _seeded(runs)]
    steps = [split_statistics(values[n : n + 2], counts[n : n + 2], noise)[0] for n in range(runs - 1)]
    excess = float(_excess(np.array(steps))[0])
    weights = np.maximum(1, counts.sum(axis=1)).round().astype(int)
    limit = _limits(tuple(weights.tolist()), alpha).of(excess)
    return list(_search(scanned, 0, runs, limit, _SLACK * max(1.0, excess) ** 2))


def noise_variances(values: Matrix, counts: Matrix) -> Matrix:
    """Returns the variance of one rollout of each example from run to run.

    The variance comes from the squared differences of neighbouring runs; a change of the level affects only one of them
    (von Neumann, "Distribution of the ratio of the mean square successive difference to the variance", 1941). With few
    differences, the variance is shrunk towards the mean over all examples.
    """
    known = (counts[1:] > 0) & (counts[:-1] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where(known, (values[1:] - values[:-1]) ** 2 / (1 / counts[1:] + 1 / counts[:-1]), 0.0)
    differences, total = known.sum(axis=0), squares.sum(axis=0)
    mean = total.sum() / max(1, differences.sum())
    found: Matrix = (total + _SHRINKAGE * mean) / (differences + _SHRINKAGE)
    return found


def split_statistics(values: Matrix, counts: Matrix, noise: Matrix | None = None) -> Matrix:
    """Returns by how many standard errors the runs after each split are higher than those before: (runs − 1) × 1.

    The weight of an example is the harmonic mean of its numbers of rollouts before and after. This is the least-squares
    estimate of one step, with an effect of each example. Without ``noise``, each column is its own series with variance
    1, and the result is (runs − 1) × columns.
    """
    sums, rollouts = np.nan_to_num(values * counts).cumsum(axis=0), counts.cumsum(axis=0)
    before, after = rollouts[:-1], rollouts[-1] - rollouts[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.nan_to_num(before * after / (before + after))
        steps = np.nan_to_num(weights * ((sums[-1] - sums[:-1]) / after - sums[:-1] / before))
        if noise is None:
            found = steps / np.sqrt(weights)
        else:
            found = steps.sum(axis=1, keepdims=True) / np.sqrt((weights * noise).sum(axis=1, keepdims=True))
    result: Matrix = np.nan_to_num(found, posinf=0.0, neginf=0.0)
    return result


def levels(values: Matrix) -> Matrix:
    """Returns the mean of each run as if it had all examples: the least-squares fit of run and example effects."""
    known = ~np.isnan(values)
    asked, run_effects = known.sum(axis=1), np.zeros(len(values))
    for _ in range(50):
        examples = np.nansum(values - run_effects[:, None], axis=0) / np.maximum(1, known.sum(axis=0))
        run_effects = np.nansum(values - examples, axis=1) / np.maximum(1, asked)
    return np.where(asked > 0, run_effects + examples.mean(), np.nan)


def _seeded(runs: int) -> Iterator[tuple[int, int]]:
    """Yields intervals that overlap by half, from all runs down to two neighbours (definition 1 of Kovács et al.)."""
    seen = set()
    for layer in range(1 + ceil(log(max(2, runs) / 2) / -log(_DECAY)) + 1):
        length = max(2.0, runs * _DECAY**layer)
        count = 2 * ceil(runs / length) - 1
        shift = (runs - length) / (count - 1) if count > 1 else 0.0
        for n in range(count):
            interval = int(n * shift), min(runs, ceil(n * shift + length))
            if interval not in seen:
                seen.add(interval)
                yield interval


def _excess(steps: Matrix) -> Matrix:
    """Returns the ratio of observed to expected differences of neighbours for each column. About 1 means no excess."""
    if len(steps) < _FEWEST:
        return np.ones(steps.shape[1])
    found: Matrix = np.quantile(np.abs(steps), _QUANTILE, axis=0, method="lower") / _OF_HALF_NORMAL
    return found


@dataclass(frozen=True)
class _Limits:
    """Limits that the largest statistic of a series without a change exceeds with chance alpha.

    ``known`` is for runs that differ no more than their examples explain. ``unknown`` is for other runs, whose noise
    can only be estimated from the excess. One series in twenty has the ``surprising`` excess by chance.
    """

    known: float
    unknown: float
    surprising: float

    def of(self, excess: float) -> float:
        return self.unknown * excess if excess > self.surprising else self.known * max(1.0, excess)


@lru_cache(maxsize=64)
def _limits(weights: tuple[int, ...], alpha: float) -> _Limits:
    counts, draws = np.array(weights, dtype=float)[:, None], _DRAWN // len(weights)
    draws = max(_FEWEST_DRAWS, min(_MOST_DRAWS, draws))
    values = np.random.default_rng(0).standard_normal((len(weights), draws)) / np.sqrt(counts)
    largest = np.zeros(draws)
    for low, high in _seeded(len(weights)):
        largest = np.maximum(largest, np.abs(split_statistics(values[low:high], counts[low:high])).max(axis=0))
    steps = [split_statistics(values[n : n + 2], counts[n : n + 2])[0] for n in range(len(weights) - 1)]
    excess = _excess(np.array(steps))
    return _Limits(
        known=float(np.quantile(largest / np.maximum(1.0, excess), 1 - alpha)),
        unknown=float(np.quantile(largest / excess, 1 - alpha)),
        surprising=float(np.quantile(excess, 1 - _SURPRISING)),
    )


def _search(scanned: _Scanned, low: int, high: int, limit: float, slack: float) -> Iterator[ChangePoint]:
    """Yields the changes among the runs from ``low`` to ``high`` (exclusive), in time order.

    The bounds of a change include the runs whose squared statistic is at most ``slack`` below the largest.
    """
    inside = [(first, found) for first, found in scanned if low <= first and first + len(found) < high]
    if not inside:
        return
    first, found = max(inside, key=lambda one: float(np.abs(one[1]).max()))
    place = int(np.abs(found).argmax())
    if abs(found[place]) <= limit:
        return
    at = first + place + 1
    near = first + 1 + np.flatnonzero(found**2 >= found[place] ** 2 - slack)
    yield from _search(scanned, low, at, limit, slack)
    yield ChangePoint(at, int(near[0]), int(near[-1]), float(found[place]))
    yield from _search(scanned, at, high, limit, slack)
