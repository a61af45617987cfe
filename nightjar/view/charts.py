"""Charts: the positions of numbers and labels. ``templates/charts.html`` draws the charts as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from math import floor, isfinite, log10
from typing import Any, ClassVar

from nightjar.core.text import counted, one_line
from nightjar.reports.rollouts import BARS
from nightjar.warehouse import QueryResult
from nightjar.warehouse.reading.result import value_text

_STEPS = (1, 2, 5, 10)
_TICKS = 5
_LARGEST = 1e300
"""Larger numbers are drawn at this number. Differences below its inverse count as 0, so that steps stay finite."""
_MOST_BARS = 100
_LONGEST_LABEL = 60
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - any zone
_LEAST_SPARK_SPAN = 0.02
_BARS_BETWEEN_LABELS = 5


@dataclass(frozen=True)
class Scale:
    """Maps numbers from ``low`` to ``high`` to positions from ``start`` to ``end``; ``low`` and ``high`` differ."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> Scale:
        known = [max(-_LARGEST, min(_LARGEST, value)) for value in values if isfinite(value)] or [0.0, 1.0]
        low, high = min(known), max(known)
        room = abs(low) / 2 if abs(low) > 1 / _LARGEST else 0.5
        return cls(low, high, start, end) if high - low > 1 / _LARGEST else cls(low - room, high + room, start, end)

    def place(self, value: float) -> float:
        """Returns the position of a number. A number outside the scale is drawn at the end of the scale."""
        share = min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
        return round(self.start + share * (self.end - self.start), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Returns the positions and labels of a few round numbers."""
        rough = (self.high - self.low) / _TICKS
        unit = 10.0 ** floor(log10(rough))
        step = next(step * unit for step in _STEPS if step * unit >= rough * (1 - 1e-9))
        first = -floor(-self.low / step + 1e-9)
        numbers = [number * step for number in range(first, floor(self.high / step + 1e-9) + 1)]
        return [(self.place(number), f"{number:.6g}") for number in numbers]


@dataclass(frozen=True)
class Point:
    """A point of a plot. ``x`` is in percent of the width; ``y`` and the ends of the interval are in pixels.

    A point that must not be compared with others is drawn hollow (``is_hollow``).
    """

    x: float
    y: float
    ends: list[float]
    text: str
    address: str = ""
    is_hollow: bool = False


@dataclass(frozen=True)
class Mark:
    """A vertical line in a plot, where a version changes. With ``is_change``, the line marks a change of level."""

    x: float
    name: str
    text: str
    is_change: bool = False


@dataclass(frozen=True)
class Plot:
    """A line chart, as wide as the page. ``below`` gives the labels under the chart and their positions.

    ``joined`` pairs the points that a line joins.
    """

    HEIGHT: ClassVar = 180
    LEFT: ClassVar = 6.0
    RIGHT: ClassVar = 98.0

    points: list[Point]
    up: Scale
    below: list[tuple[float, str]]
    marks: list[Mark]
    label: str
    joined: Sequence[tuple[Point, Point]]


@dataclass(frozen=True)
class Bars:
    """A bar chart. ``bars`` has the text and the number of each bar."""

    bars: list[tuple[str, float]]
    scale: Scale
    label: str


@dataclass(frozen=True)
class Column:
    """A column of a histogram, with the number of its rollouts. ``text`` describes the column in words.

    ``x``, ``width`` and ``height`` are in percent. ``lowest`` and ``highest`` are rewards of rollouts in the column.
    """

    x: float
    width: float
    height: float
    count: int
    lowest: float
    highest: float
    text: str

    @property
    def condition(self) -> str:
        """The rewards of the column as an SQL condition on rollouts."""
        if self.lowest == self.highest:
            return f"reward = {self.lowest!r}"
        return f"reward BETWEEN {self.lowest!r} AND {self.highest!r}"


@dataclass(frozen=True)
class Histogram:
    """A column per reward, or per range of rewards. ``below`` has the labels of the axis and their positions."""

    HEIGHT: ClassVar = 112

    columns: Sequence[Column]
    below: Sequence[tuple[float, str]]
    counts: Scale
    label: str


@dataclass(frozen=True)
class Spark:
    """The rewards of the recent runs of one kind as a line in SVG's format, 64 pixels wide and 20 high.

    ``at`` is the position of the run itself, or None if the run is not among the recent runs.
    """

    points: str
    at: tuple[float, float] | None
    label: str

    @classmethod
    def of(cls, history: Sequence[Mapping[str, Any]], run_id: str) -> Spark:
        """Returns the line for two or more runs with ``run_id`` and ``reward``, oldest first."""
        rewards = [run["reward"] for run in history]
        low, span = min(rewards), max(max(rewards) - min(rewards), _LEAST_SPARK_SPAN)
        places = {
            run["run_id"]: (
                round(3 + 58 * number / (len(history) - 1), 1),
                round(17 - 14 * (run["reward"] - low) / span, 1),
            )
            for number, run in enumerate(history)
        }
        label = f"Rewards of the last {len(rewards)} runs: {rewards[0]:.3f} to {rewards[-1]:.3f}, lowest {low:.3f}"
        return cls(" ".join(f"{x},{y}" for x, y in places.values()), places.get(run_id), label)


def numeric_columns(result: QueryResult) -> list[str]:
    return [
        name
        for place, name in enumerate(result.columns)
        if (values := [row[place] for row in result.rows if row[place] is not None])
        and all(_is_number(value) and isfinite(value) for value in values)
    ]


def bars(result: QueryResult, x: str, y: str) -> Bars:
    """Returns a bar chart of the first 100 rows."""
    pairs = _pairs(result, x, y)[:_MOST_BARS]
    drawn = [(f"{_label(name)}: {number:.6g}", number) for name, number in pairs]
    scale = Scale.over([0.0, *(number for _, number in pairs)], 0, 100)
    return Bars(drawn, scale, f"{y} by {x}: {counted(len(drawn), 'bar')}")


def line(result: QueryResult, x: str, y: str) -> Plot:
    """Draws column ``y`` over column ``x``. If ``x`` has neither numbers nor times, draws ``y`` over the row number."""
    pairs = _pairs(result, x, y)
    places = [_position(name) for name, _ in pairs]
    known = [place for place in places if place is not None]
    if len(known) < len(pairs):
        known = [float(number) for number in range(len(pairs))]
    right = Scale.over(known, Plot.LEFT, Plot.RIGHT)
    up = Scale.over([number for _, number in pairs], Plot.HEIGHT, 0)
    points = [
        Point(right.place(place), up.place(number), [], f"{_label(name)}: {number:.6g}")
        for place, (name, number) in sorted(zip(known, pairs, strict=True), key=lambda item: item[0])
    ]
    ends = [(point.x, point.text.rpartition(": ")[0]) for point in (points[0], points[-1])]
    return Plot(points, up, ends, [], f"{y} over {x}: {counted(len(points), 'point')}", list(pairwise(points)))


def histogram(rows: Sequence[Mapping[str, Any]]) -> Histogram | None:
    """Returns the chart of the ``rewards`` of ``reports.rollouts.TOGETHER``. Returns None without rewards."""
    if not rows:
        return None
    most, total, step = max(row["count"] for row in rows), sum(row["count"] for row in rows), rows[0]["width"]
    bars = BARS if step else len(rows)
    room = 100 / bars
    columns = []
    for number, row in enumerate(rows):
        place = round((row["low"] - rows[0]["low"]) / step) if step else number
        value = f"{row['low']:.4g}" + (f" to {row['low'] + step:.4g}" if step else "")
        text = f"Reward {value}: {counted(row['count'], 'rollout')}, {row['count'] / total:.1%}"
        shape = (round((place + 0.05) * room, 2), round(room * 0.9, 2), round(100 * row["count"] / most, 2))
        columns.append(Column(*shape, row["count"], row["lowest"], row["highest"], text))
    if step:
        edges = range(0, bars + 1, _BARS_BETWEEN_LABELS)
        below = [(round(edge * room, 2), f"{rows[0]['low'] + edge * step:.4g}") for edge in edges]
    else:
        below = [(round(column.x + column.width / 2, 2), f"{column.lowest:.4g}") for column in columns]
    label = f"Rewards of {counted(total, 'scored rollout')}"
    return Histogram(columns, below, Scale(0, most, Histogram.HEIGHT, 0), label)


def _pairs(result: QueryResult, x: str, y: str) -> list[tuple[Any, float]]:
    at_x, at_y = result.columns.index(x), result.columns.index(y)
    return [(row[at_x], float(row[at_y])) for row in result.rows if row[at_y] is not None]


def _position(value: Any) -> float | None:
    if isinstance(value, datetime):
        return (value - _EPOCH.replace(tzinfo=value.tzinfo)).total_seconds()
    if isinstance(value, date):
        return float(value.toordinal())
    return float(value) if _is_number(value) and isfinite(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _label(value: Any) -> str:
    return one_line(value_text(value), _LONGEST_LABEL) or "nothing"
