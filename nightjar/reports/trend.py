"""A trend as sentences, as a drawing for the terminal, and as a Vega-Lite chart or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nightjar.analysis.trending import Change, Trend, TrendPoint, TrendSeries
from nightjar.core.extras import require_extra
from nightjar.core.text import shortened

_ROWS = 12
_LABEL = 8
_WIDEST_STEP = 4
_Z = 1.96
_LONGEST_VALUE = 24
_MANY_NEW, _REMARKS = 0.05, 5
_WIDTH, _HEIGHT = 720, 240
_CHANGE = "#b22222"


def drawing(series: TrendSeries, width: int = 80) -> list[str]:
    """Draws each run as a dot with a bar for its noise, and changes as ┊.

    A column may show the mean of several runs.
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
    days = {point.run_id: f"{point.began:%Y-%m-%d}" for point in series.points}
    earliest, latest = days[change.earliest], days[change.latest]
    where = f"run {change.run_id}"
    if change.earliest != change.latest:
        where += f", or a run from {earliest} to {latest}" if earliest != latest else f", or another run of {earliest}"
    lines = {
        days[change.run_id]: f"{change.before:.4f} → {change.after:.4f} ({change.after - change.before:+.4f}, "
        f"{abs(change.statistic):.1f} standard errors) with {where}",
        "Differs": "; ".join(f"{name}: {_short(was)} → {_short(now)}" for name, (was, now) in change.differs.items())
        or "no recorded setting, only the responses",
        "Nearby": ", ".join(change.nearby) and f"also changed within these days: {', '.join(change.nearby)}",
        "Flips": _flips(change),
    }
    return {label: text for label, text in lines.items() if text}


def remarks(series: TrendSeries) -> list[str]:
    sentences = [
        f"{point.began:%Y-%m-%d}: different examples from run {point.run_id} on; runs before and after are not compared"
        if point.segment != before.segment
        else f"{point.began:%Y-%m-%d}: {point.new:,} of {point.examples:,} examples are new with run {point.run_id}; "
        "the other examples are compared with earlier runs"
        for before, point in pairwise(series.points)
        if point.segment != before.segment or point.new > _MANY_NEW * point.examples
    ]
    more = len(sentences) - _REMARKS
    return [*sentences[:_REMARKS], f"and {more:,} more like these"] if more > 0 else sentences


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


def _short(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    text = "none" if value in (None, "") else str(value)
    return shortened(text, _LONGEST_VALUE)


def _flips(change: Change) -> str:
    if change.flipped is None:
        return ""
    usually = "" if change.usually_flipped is None else f"; between runs without a change {change.usually_flipped:.1%}"
    return f"{change.flipped:.1%} of the examples that this run shares with the run before{usually}"


def trend_svg(found: Trend) -> str:
    """Returns the chart as SVG. Raises ``ConfigError`` if the package that draws the chart is not installed."""
    converter = require_extra("vl_convert", "svg", "A chart as SVG")
    return str(converter.vegalite_to_svg(trend_chart(found)))


def trend_chart(found: Trend) -> dict[str, Any]:
    """Returns the Vega-Lite specification, with a panel for each series.

    A dot is a run, and its bar is the noise from run to run at 95 %. The line is the level between changes, and a
    dashed rule is a change. The band is the interval of a run's mean for other, similar examples.
    """
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": f"{found.env_id}: {found.metric}",
        "background": "white",
        "vconcat": [_panel(series, found.metric) for series in found.series],
        "config": {"view": {"stroke": None}, "axis": {"grid": False}, "title": {"anchor": "start"}},
    }


def _panel(series: TrendSeries, metric: str) -> dict[str, Any]:
    scale = {"type": "quantitative", "title": metric, "scale": {"zero": False}}
    changes = [
        {"began": change.began.isoformat(), "change": f"{change.after - change.before:+.3f}"}
        for change in series.changes
    ]
    marked = {"data": {"values": changes}}
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "title": series.model or "",
        "data": {"values": _rows(series)},
        "encoding": {"x": {"field": "began", "type": "temporal", "title": None}, "detail": {"field": "part"}},
        "layer": [
            _layer({"type": "area", "opacity": 0.1}, y={"field": "low", **scale}, y2={"field": "high"}),
            _layer("rule", y={"field": "from", **scale}, y2={"field": "to"}),
            _layer({"type": "line", "strokeWidth": 1}, y={"field": "mean", **scale}),
            _layer({"type": "point", "filled": True, "size": 36, "opacity": 1}, y={"field": "level", **scale}),
            marked | _layer({"type": "rule", "strokeDash": [4, 3], "color": _CHANGE}),
            marked
            | _layer(
                {"type": "text", "align": "left", "dx": 4, "dy": 8, "color": _CHANGE, "y": 0}, text={"field": "change"}
            ),
        ],
    }


def _layer(mark: str | dict[str, Any], **encoding: Any) -> dict[str, Any]:
    return {"mark": mark, "encoding": encoding}


def _rows(series: TrendSeries) -> list[dict[str, Any]]:
    parts: list[list[TrendPoint]] = []
    changed = {change.run_id for change in series.changes}
    for point in series.points:
        if not parts or point.run_id in changed or point.segment != parts[-1][-1].segment:
            parts.append([])
        parts[-1].append(point)
    return [_row(point, number, part) for number, part in enumerate(parts) for point in part]


def _row(point: TrendPoint, number: int, part: list[TrendPoint]) -> dict[str, Any]:
    shift = point.level - point.value
    return {
        "began": point.began.isoformat(),
        "run_id": point.run_id,
        "part": number,
        "level": point.level,
        "from": point.level - _Z * point.noise,
        "to": point.level + _Z * point.noise,
        "low": point.interval.low + shift if point.examples > 1 else None,
        "high": point.interval.high + shift if point.examples > 1 else None,
        "mean": sum(one.level for one in part) / len(part),
    }
