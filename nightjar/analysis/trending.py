"""``trend``: finds where the level of an environment's runs changed over time, and which settings changed too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nightjar.analysis.history import History, read_history
from nightjar.analysis.pairs import differing
from nightjar.errors import ConfigError
from nightjar.statistics.change_points import ChangePoint, Matrix, change_points, levels, noise_variances
from nightjar.statistics.estimates import clustered_mean
from nightjar.statistics.intervals import Interval, MeanSummary, interval_of
from nightjar.warehouse import Warehouse

_ENOUGH = 30
"""Runs are of one segment if they share this many examples, or half of the examples of the smaller run."""


@dataclass(frozen=True)
class TrendPoint:
    """A run of a series. A segment is a stretch of runs with examples in common.

    Attributes:
        interval: the 95 % interval of ``value`` for similar examples (``interval_of``).
        level: the estimated mean over all examples of the segment.
        noise: standard error of ``level`` from run to run, over the same examples.
        new: the number of examples that no earlier run of the segment had. Comparisons leave out these examples. 0 for
            the first run.
    """

    run_id: str
    began: datetime
    value: float
    interval: Interval
    level: float
    noise: float
    examples: int
    new: int
    segment: int


@dataclass(frozen=True)
class Change:
    """A run at which the level changes.

    Attributes:
        earliest, latest: the bounds, at 95 %, of the first run with the new level.
        before, after: mean level of the runs up to the neighbouring changes.
        statistic: distance of ``before`` and ``after`` in standard errors.
        nearby: settings that changed at other runs between ``earliest`` and ``latest``.
        flipped: share of the common examples that only one of the two runs has right; None if unknown.
        usually_flipped: median of ``flipped`` over the other neighbouring runs of the segment.
    """

    run_id: str
    previous: str
    began: datetime
    earliest: str
    latest: str
    before: float
    after: float
    statistic: float
    differs: Mapping[str, tuple[Any, Any]]
    nearby: Sequence[str]
    flipped: float | None
    usually_flipped: float | None


@dataclass(frozen=True)
class TrendSeries:
    """The runs of a model with successive settings, and their changes, both in time order."""

    model: str | None
    points: list[TrendPoint]
    changes: list[Change]


@dataclass(frozen=True)
class Trend:
    """The series of each model, the longest first."""

    env_id: str
    metric: str
    alpha: float
    series: list[TrendSeries]


def trend(
    env_id: str,
    *,
    model: str | None = None,
    metric: str = "reward",
    since: date | None = None,
    alpha: float = 0.01,
    warehouse: str | Path | Warehouse | None = None,
) -> Trend:
    if not 0 < alpha < 1:
        raise ConfigError(f"Expected alpha between 0 and 1, found {alpha}")
    where = Warehouse.of(warehouse)
    series = [_series(past, alpha) for past in read_history(where, env_id, model=model, metric=metric, since=since)]
    series.sort(key=lambda one: (one.model or "", -len(one.points)))
    return Trend(env_id, metric, alpha, series)


def _series(past: History, alpha: float) -> TrendSeries:
    starts = [*_segment_starts(past.counts > 0), len(past.runs)]
    points: list[TrendPoint] = []
    changes: list[Change] = []
    for segment, (low, high) in enumerate(pairwise(starts)):
        part = past.between(low, high)
        points += _points(part, segment)
        found = change_points(part.values, part.counts, alpha / (len(starts) - 1))
        changes += _changes(part, found, [point.level for point in points[low:high]])
    return TrendSeries(past.model, points, changes)


def _segment_starts(asked: NDArray[np.bool_]) -> Iterator[int]:
    """Yields the positions of the first run, and of each run with too few examples in common with the runs before."""
    before = np.zeros(asked.shape[1], dtype=bool)
    for place, examples in enumerate(asked):
        common = int((before & examples).sum())
        if common < min(_ENOUGH, examples.sum() / 2, before.sum() / 2) or not place:
            before = np.zeros_like(before)
            yield place
        before = before | examples


def _points(past: History, segment: int) -> Iterator[TrendPoint]:
    noise = noise_variances(past.values, past.counts)
    seen = past.counts[0] > 0
    for run, level, row, count in zip(past.runs, levels(past.values), past.values, past.counts, strict=True):
        asked = count > 0
        new = int((asked & ~seen).sum())
        seen = seen | asked
        values = row[asked]
        summary = MeanSummary(
            clustered_mean([[value] for value in values]),
            int(count.sum()),
            len(values),
            float(values.min()),
            float(values.max()),
        )
        interval, _ = interval_of(summary)
        error = float(np.sqrt((noise[asked] / count[asked]).sum())) / int(asked.sum())
        yield TrendPoint(
            run_id=run.run_id,
            began=run.began,
            value=float(row[asked].mean()),
            interval=interval,
            level=float(level),
            noise=error,
            examples=int(asked.sum()),
            new=new,
            segment=segment,
        )


def _changes(past: History, found: Sequence[ChangePoint], level: Sequence[float]) -> Iterator[Change]:
    runs = past.runs
    edges = [0, *(one.at for one in found), len(runs)]
    flipped = [_flipped(before, after) for before, after in pairwise(past.correct)]
    usual = [share for place, share in enumerate(flipped, 1) if place not in edges and share is not None]
    weights = past.counts.sum(axis=1)

    def mean(low: int, high: int) -> float:
        return float(np.average(level[low:high], weights=weights[low:high]))

    for n, one in enumerate(found, 1):
        near = [differing(runs[at - 1].settings, runs[at].settings) for at in range(one.earliest, one.latest + 1)]
        differs = differing(runs[one.at - 1].settings, runs[one.at].settings)
        yield Change(
            run_id=runs[one.at].run_id,
            previous=runs[one.at - 1].run_id,
            began=runs[one.at].began,
            earliest=runs[one.earliest].run_id,
            latest=runs[one.latest].run_id,
            before=mean(edges[n - 1], one.at),
            after=mean(one.at, edges[n + 1]),
            statistic=one.statistic,
            differs=differs,
            nearby=sorted({name for each in near for name in each} - differs.keys()),
            flipped=flipped[one.at - 1],
            usually_flipped=median(usual) if usual else None,
        )


def _flipped(before: Matrix, after: Matrix) -> float | None:
    both = ~np.isnan(before - after)
    return float(((before >= 0.5) != (after >= 0.5))[both].mean()) if both.any() else None  # noqa: PLR2004 - half
