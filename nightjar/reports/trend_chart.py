"""A trend as a chart: a specification of Vega-Lite, which a browser draws as well, and an SVG made of it."""

from __future__ import annotations

from typing import Any

from nightjar.comparison import Trend, TrendPoint, TrendSeries
from nightjar.errors import ConfigError
from nightjar.packages.extras import import_extra

_Z = 1.96
_WIDTH, _HEIGHT = 720, 240
_CHANGE = "#b22222"


def trend_svg(found: Trend) -> str:
    """Returns the chart as SVG.

    Raises:
        ConfigError: the package that draws it is not installed.
    """
    try:
        converter = import_extra("vl_convert", "svg", "A chart as SVG")
    except ImportError as error:
        raise ConfigError(str(error)) from error
    return str(converter.vegalite_to_svg(trend_chart(found)))


def trend_chart(found: Trend) -> dict[str, Any]:
    """Returns the specification: a panel a series.

    A dot is a run, its bar how far it may be off from run to run at 95 %; the line is the level between changes, the
    band how far a run's mean may be off for other examples like these, a dashed rule a change.
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
                {"type": "text", "align": "left", "dx": 4, "dy": 8, "color": _CHANGE, "y": 0},
                text={"field": "change"},
            ),
        ],
    }


def _layer(mark: str | dict[str, Any], **encoding: Any) -> dict[str, Any]:
    return {"mark": mark, "encoding": encoding}


def _rows(series: TrendSeries) -> list[dict[str, Any]]:
    """Returns a row for each run; runs of one part have no change between them."""
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
