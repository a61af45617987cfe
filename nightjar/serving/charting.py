"""Two columns of an answer as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from nightjar.serving.plotting import Plot, Point, Scale
from nightjar.warehouse import QueryResult
from nightjar.warehouse.reading.result_values import value_text

MOST_BARS = 100
_LONGEST_LABEL = 60
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of whichever zone


@dataclass(frozen=True)
class Bar:
    """A bar: from where and how far it goes in percent of the width, and what is written above it."""

    start: float
    width: float
    text: str


@dataclass(frozen=True)
class Bars:
    """A bar for each row, one below the other; ``zero`` is where they begin."""

    bars: list[Bar]
    zero: float
    label: str


def numeric_columns(result: QueryResult) -> list[str]:
    """Returns the columns that have finite numbers and nothing else."""
    return [
        name
        for place, name in enumerate(result.columns)
        if (values := [row[place] for row in result.rows if row[place] is not None])
        and all(_is_number(value) and isfinite(value) for value in values)
    ]


def bars(result: QueryResult, x: str, y: str) -> Bars:
    """Returns the numbers of a column as bars, the first ``MOST_BARS`` of them."""
    pairs = _pairs(result, x, y)[:MOST_BARS]
    scale = Scale.over([0.0, *(number for _, number in pairs)], 0, 100)
    zero = scale.place(0.0)
    drawn = [
        Bar(min(zero, end := scale.place(number)), round(abs(end - zero), 2), f"{_label(name)}: {number:.6g}")
        for name, number in pairs
    ]
    return Bars(drawn, zero, f"{y} by {x}: {len(drawn):,} bars")


def line(result: QueryResult, x: str, y: str) -> Plot:
    """Returns the numbers of a column over another: one of numbers or times, else in the order of the rows."""
    pairs = _pairs(result, x, y)
    places = [_position(name) for name, _ in pairs]
    known = [place for place in places if place is not None]
    if len(known) < len(pairs):
        known = [float(number) for number in range(len(pairs))]
    right = Scale.over(known, Plot.LEFT, Plot.RIGHT)
    up = Scale.over([number for _, number in pairs], Plot.HEIGHT, 0)
    points = [
        Point(right.place(place), up.place(number), [], f"{_label(name)}: {number:.6g}")
        for place, (name, number) in sorted(zip(known, pairs, strict=True), key=lambda one: one[0])
    ]
    ends = [(point.x, point.text.rpartition(": ")[0]) for point in (points[0], points[-1])]
    return Plot(points, up, ends, [], f"{y} over {x}: {len(points):,} points")


def _pairs(result: QueryResult, x: str, y: str) -> list[tuple[Any, float]]:
    """Returns the values of two columns where the second has one."""
    at_x, at_y = result.columns.index(x), result.columns.index(y)
    return [(row[at_x], float(row[at_y])) for row in result.rows if row[at_y] is not None]


def _position(value: Any) -> float | None:
    """Returns a number or a time as a number; None for what is neither."""
    if isinstance(value, datetime):
        return (value - _EPOCH.replace(tzinfo=value.tzinfo)).total_seconds()
    if isinstance(value, date):
        return float(value.toordinal())
    return float(value) if _is_number(value) and isfinite(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _label(value: Any) -> str:
    text = " ".join(value_text(value).split()) or "nothing"
    return text if len(text) <= _LONGEST_LABEL else f"{text[:_LONGEST_LABEL]}…"
