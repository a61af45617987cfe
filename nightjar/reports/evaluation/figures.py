"""The scores of a run as a table with drawn intervals, and as a Vega-Lite chart."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from nightjar.analysis.run_statistics import Mean
from nightjar.reports.evaluation.gathering import RunReport
from nightjar.reports.evaluation.rendering import measures, score
from nightjar.reports.panels import PanelTable, spans

_WIDTH, _HEIGHT, _ROW = 420, 180, 24


def scores_table(run: RunReport) -> PanelTable:
    """Returns the mean reward, pass rates and metrics. The intervals are drawn on one scale."""
    rows = [("reward", *score(run.statistics.reward)), *measures(run)]
    drawn = spans([(mean.value, mean.interval) for _, mean in _means(run)])
    drawn += [None] * (len(rows) - len(drawn)) if drawn else []
    interval = f"{100 * (1 - run.statistics.alpha):g} % interval"
    return PanelTable(("Score", "Mean", interval), rows, numbers=frozenset({"Mean", interval}), spans=drawn)


def run_chart(run: RunReport) -> dict[str, Any]:
    """Returns the Vega-Lite specification: the scores with their intervals, beside the rewards of the rollouts.

    Metrics outside of 0 to 1, such as counts, are left out, because they would need another scale.
    """
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": f"{run.benchmark} | {run.model}: run {run.run_id}",
        "background": "white",
        "hconcat": [_scores(run), _rewards(run)],
        "config": {"view": {"stroke": None}, "axis": {"grid": False}, "title": {"anchor": "start"}},
    }


def _means(run: RunReport) -> Iterator[tuple[str, Mean]]:
    yield "reward", run.statistics.reward
    for rate in run.statistics.pass_rates:
        yield f"pass@{rate.k}", rate.at_k
        if rate.k > 1:
            yield f"pass^{rate.k}", rate.all_k


def _scores(run: RunReport) -> dict[str, Any]:
    values = [
        {
            "score": name,
            "mean": mean.value,
            "low": mean.interval.low if isfinite(mean.interval.low) else None,
            "high": mean.interval.high if isfinite(mean.interval.high) else None,
        }
        for name, mean in _means(run)
    ]
    shares = {name: value for name, value in run.metrics.items() if 0 <= value <= 1}
    values += [{"score": name, "mean": value, "low": None, "high": None} for name, value in shares.items()]
    scale = {"type": "quantitative", "title": None}
    return {
        "width": _WIDTH,
        "height": {"step": _ROW},
        "data": {"values": values},
        "encoding": {"y": {"field": "score", "type": "nominal", "sort": None, "title": None}},
        "layer": [
            {"mark": "rule", "encoding": {"x": {"field": "low", **scale}, "x2": {"field": "high"}}},
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1, "tooltip": True},
                "encoding": {"x": {"field": "mean", **scale}},
            },
        ],
    }


def _rewards(run: RunReport) -> dict[str, Any]:
    values = [{"low": row["low"], "high": row["low"] + row["width"], "rollouts": row["count"]} for row in run.rewards]
    place: dict[str, Any] = {"x": {"field": "low", "type": "ordinal", "title": "reward", "axis": {"labelAngle": 0}}}
    if any(row["width"] for row in run.rewards):
        place = {"x": {"field": "low", "type": "quantitative", "title": "reward"}, "x2": {"field": "high"}}
    return {
        "width": _WIDTH // 2,
        "height": _HEIGHT,
        "data": {"values": values},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {**place, "y": {"field": "rollouts", "type": "quantitative"}},
    }
