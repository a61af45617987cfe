"""A trend in words, and drawn for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nightjar.comparison.trending import Change, TrendPoint, TrendSeries

_ROWS = 12
_LABEL = 8
_WIDEST_STEP = 4
_Z = 1.96
_LONGEST_VALUE = 24
_MANY_NEW, _REMARKS = 0.05, 5


def drawing(series: TrendSeries, width: int = 80) -> list[str]:
    """Returns the lines of a drawing: a dot for a run, a bar for how far it may be off from run to run, ┊ for changes.

    Where there are more runs than columns, a column has several: their mean.

    Args:
        series: what is drawn.
        width: columns of the terminal.
    """
    groups = _columns(series.points, width - _LABEL - 1)
    step = min(_WIDEST_STEP, max(1, (width - _LABEL - 1) // len(groups)))
    bars = [_bar(group) for group in groups]
    lowest, highest = min(low for low, _, _ in bars), max(high for _, _, high in bars)
    margin = max(0.01, (highest - lowest) * 0.05)
    lowest, height = lowest - margin, highest - lowest + 2 * margin
    rows = [[" "] * (len(groups) * step) for _ in range(_ROWS)]

    def row(value: float) -> int:
        return min(_ROWS - 1, int((lowest + height - value) / height * _ROWS))

    for column, is_marked in enumerate(_marked(groups, series)):
        if is_marked:
            for line in rows:
                line[max(0, column * step - step // 2)] = "┊"
    for column, (low, level, high) in enumerate(bars):
        for line in rows[row(high) : row(low) + 1]:
            line[column * step] = "│"
        rows[row(level)][column * step] = "●"
    labels = [f"{lowest + height * (1 - (n + 0.5) / _ROWS):{_LABEL - 2}.3f} ┤" for n in range(_ROWS)]
    labels = [label if n % 3 == 1 else " " * (_LABEL - 1) + "│" for n, label in enumerate(labels)]
    drawn = [label + "".join(line).rstrip() for label, line in zip(labels, rows, strict=True)]
    return [*drawn, " " * (_LABEL - 1) + "└" + "─" * (len(groups) * step), _dates(series.points, len(groups) * step)]


def change_findings(series: TrendSeries, change: Change) -> dict[str, str]:
    """Returns label to what is known of a change, the most important first."""
    days = {point.run_id: f"{point.began:%Y-%m-%d}" for point in series.points}
    earliest, latest = days[change.earliest], days[change.latest]
    where = f"run {change.run_id}"
    if change.earliest != change.latest:
        where += f", or another from {earliest} to {latest}" if earliest != latest else f", or another of {earliest}"
    told = {
        days[change.run_id]: f"{change.before:.4f} → {change.after:.4f} ({change.after - change.before:+.4f}, "
        f"{abs(change.statistic):.1f} standard errors) with {where}",
        "Differs": "; ".join(_setting(name, *values) for name, values in change.differs.items())
        or "no setting that is recorded: nothing but the answers",
        "Nearby": ", ".join(change.nearby) and f"within these days also: {', '.join(change.nearby)}",
        "Flips": _flips(change),
    }
    return {label: text for label, text in told.items() if text}


def remarks(series: TrendSeries) -> list[str]:
    """Returns what a reader must know of a series: where the examples are others."""
    told = [
        f"{point.began:%Y-%m-%d}: other examples from run {point.run_id} on; runs are not compared across this"
        if point.segment != before.segment
        else f"{point.began:%Y-%m-%d}: {point.new:,} of {point.examples:,} are new with run {point.run_id}; with runs "
        "before it, it is compared on the others"
        for before, point in pairwise(series.points)
        if point.segment != before.segment or point.new > _MANY_NEW * point.examples
    ]
    return told if len(told) <= _REMARKS else [*told[:_REMARKS], f"and so {len(told) - _REMARKS:,} times more"]


def _columns(points: Sequence[TrendPoint], columns: int) -> list[Sequence[TrendPoint]]:
    places = np.array_split(np.arange(len(points)), min(len(points), columns))
    return [points[place[0] : place[-1] + 1] for place in places]


def _bar(group: Sequence[TrendPoint]) -> tuple[float, float, float]:
    level = float(np.mean([point.level for point in group]))
    half = _Z * float(np.sqrt(np.sum([point.noise**2 for point in group]))) / len(group)
    return level - half, level, level + half


def _marked(groups: Sequence[Sequence[TrendPoint]], series: TrendSeries) -> list[bool]:
    runs = {change.run_id for change in series.changes}
    runs |= {point.run_id for before, point in pairwise(series.points) if before.segment != point.segment}
    return [any(point.run_id in runs for point in group) for group in groups]


def _dates(points: Sequence[TrendPoint], width: int) -> str:
    first, last = f"{points[0].began:%Y-%m-%d}", f"{points[-1].began:%Y-%m-%d}"
    return " " * _LABEL + (first if first == last else first + last.rjust(max(len(last) + 3, width - len(first))))


def _setting(name: str, before: Any, after: Any) -> str:
    return f"{name}: {_short(before)} → {_short(after)}"


def _short(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    text = "none" if value in (None, "") else str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _flips(change: Change) -> str:
    if change.flipped is None:
        return ""
    usually = "" if change.usually_flipped is None else f"; between runs without a change {change.usually_flipped:.1%}"
    return f"{change.flipped:.1%} of the examples that it shares with the run before{usually}"
