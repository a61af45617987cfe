"""Where the level of a series of runs over the same things has changed.

Runs over the same examples share them, so how much examples differ says nothing about how much runs do. What counts is
how much the value of one example differs from run to run: that is estimated from the examples themselves, and the
search looks at them as well, so a run may lack some of them, or have other numbers of rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Matrix = NDArray[np.float64]

_FEWEST_DRAWS, _MOST_DRAWS, _DRAWN = 2_000, 20_000, 200_000
"""How many series are simulated: as many as have so many runs together, within bounds."""
_QUANTILE = 0.75
"""Of the differences of neighbours, for the noise between runs: more of them than a few changes of the level reach."""
_OF_HALF_NORMAL = float(stats.halfnorm.ppf(_QUANTILE))
_SHRINKAGE = 4.0
"""An example's own variance counts as much as that of all after so many differences between runs."""
_FEWEST = 4
"""Of so many differences between runs and more, it is looked whether runs differ by more than their examples do."""
_DECAY = 2**-0.5
_SURPRISING = 0.05
_SLACK = 7.35
"""For 95 % (Hansen, "Sample splitting and threshold estimation", 2000, table I)."""


@dataclass(frozen=True)
class ChangePoint:
    """A run from which on the level is another.

    Attributes:
        at: place of the first run with the new level.
        earliest, latest: where that run may be as well.
        statistic: how many standard errors the levels are apart, of the runs that it was found in.
    """

    at: int
    earliest: int
    latest: int
    statistic: float


def change_points(values: Matrix, counts: Matrix, alpha: float = 0.01) -> list[ChangePoint]:
    """Returns where the level has changed, in the order of time; of a series without change, any with chance alpha.

    Of every interval of runs in a fixed set of intervals, small and large, each split into before and after is a
    regression of the values on example and side; the largest statistic of all is the first change, and each side is
    searched in the same way (binary segmentation with the intervals of Kovács, Bühlmann, Li and Munk, "Seeded binary
    segmentation", 2023, after Fryzlewicz, "Wild binary segmentation", 2014). What is large enough is simulated: normal
    values with as many observations a run. Where runs differ by more than their examples explain, as seen in the
    differences of neighbours, a change must be larger by as much.

    Args:
        values: run × example, the mean of an example's rollouts; NaN where there is none. Runs in the order of time.
        counts: run × example, of how many rollouts; 0 where there is none.
        alpha: the chance of finding any change in a series without.
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
    """Returns of each example the variance of one rollout from run to run.

    From the squared differences of neighbouring runs, which a change of the level enters only once (von Neumann,
    "Distribution of the ratio of the mean square successive difference to the variance", 1941); of few, nearer to the
    mean over all.

    Args:
        values, counts: as for ``change_points``.
    """
    known = (counts[1:] > 0) & (counts[:-1] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where(known, (values[1:] - values[:-1]) ** 2 / (1 / counts[1:] + 1 / counts[:-1]), 0.0)
    differences, total = known.sum(axis=0), squares.sum(axis=0)
    mean = total.sum() / max(1, differences.sum())
    found: Matrix = (total + _SHRINKAGE * mean) / (differences + _SHRINKAGE)
    return found


def split_statistics(values: Matrix, counts: Matrix, noise: Matrix | None = None) -> Matrix:
    """Returns for each split of runs into before and after by how many standard errors after is higher.

    An example counts with the harmonic mean of its rollouts before and after, which is the least-squares estimate of
    one step beside an effect of each example; one that is not on both sides does not count.

    Args:
        values, counts: as for ``change_points``.
        noise: the variance of one rollout of each example; None where each column is a series by itself, of variance 1.

    Returns:
        (runs − 1) × 1; or × columns without ``noise``.
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
    """Returns the mean of each run, as if it had been asked all examples.

    Where all runs have the same examples it is their mean. Otherwise an example that a run lacks has the value that it
    has elsewhere, higher or lower by as much as the run is: the least-squares fit of run and example effects, by turns.

    Args:
        values: run × example, NaN where there is none.
    """
    known = ~np.isnan(values)
    asked, run_effects = known.sum(axis=1), np.zeros(len(values))
    for _ in range(50):
        examples = np.nansum(values - run_effects[:, None], axis=0) / np.maximum(1, known.sum(axis=0))
        run_effects = np.nansum(values - examples, axis=1) / np.maximum(1, asked)
    return np.where(asked > 0, run_effects + examples.mean(), np.nan)


def _seeded(runs: int) -> Iterator[tuple[int, int]]:
    """Gives intervals that overlap by half, from all runs down to two neighbours (definition 1 of Kovács et al.)."""
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
    """Returns by how much more neighbours differ than they should, about 1, of each column of statistics."""
    if len(steps) < _FEWEST:
        return np.ones(steps.shape[1])
    found: Matrix = np.quantile(np.abs(steps), _QUANTILE, axis=0, method="lower") / _OF_HALF_NORMAL
    return found


@dataclass(frozen=True)
class _Limits:
    """What the largest statistic of a series without change exceeds with chance alpha, by the excess, which divides it.

    Attributes:
        known: where runs do not differ by more than their examples explain: the excess counts from 1 on.
        unknown: where they do, by nobody knows how much: the excess is all that is known of their noise.
        surprising: an excess that is there by chance in one series of twenty.
    """

    known: float
    unknown: float
    surprising: float

    def of(self, excess: float) -> float:
        """Returns the limit for a series."""
        return self.unknown * excess if excess > self.surprising else self.known * max(1.0, excess)


@lru_cache(maxsize=64)
def _limits(weights: tuple[int, ...], alpha: float) -> _Limits:
    counts, draws = (
        np.array(weights, dtype=float)[:, None],
        max(_FEWEST_DRAWS, min(_MOST_DRAWS, _DRAWN // len(weights))),
    )
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


_Scanned = list[tuple[int, Matrix]]


def _search(scanned: _Scanned, low: int, high: int, limit: float, slack: float) -> Iterator[ChangePoint]:
    """Gives the changes among the runs from low to high, in the order of time.

    Args:
        scanned: of each interval its first run, and the statistics of its splits.
        low, high: the first run, and the one after the last.
        limit: what a statistic must exceed.
        slack: by how much the square of a statistic may be less than the largest for the change to be there as well.
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
