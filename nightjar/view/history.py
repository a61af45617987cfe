"""A metric of an environment's runs over time: ``/history?env=gsm8k&model=gpt-4.1-mini``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from nightjar.analysis import Change, trend
from nightjar.analysis.run_statistics import summary_of
from nightjar.errors import ConfigError
from nightjar.reports.formats import percent
from nightjar.statistics.coverage import has_low_coverage
from nightjar.statistics.intervals import interval_of
from nightjar.view.charts import Mark, Plot, Point, Scale
from nightjar.view.pages import moment, page, records
from nightjar.warehouse import Warehouse

router = APIRouter()

MOST_RUNS = 200
"""The maximum number of runs drawn of a series. The newest runs are drawn."""
_SERIES = """
WITH finished AS (
    SELECT
        env_id, model, run_id, avg_reward, stderr, num_examples, scored, rollouts, coverage, reward_examples,
        lowest_reward, highest_reward, began(started_at, finished_at, published_at) AS began
    FROM segments.runs WHERE is_finished(status, run_id)
)
SELECT env_id, model, count(*) AS runs, arg_max(finished, began) AS newest
FROM finished
GROUP BY env_id, model
ORDER BY env_id, model
"""
_RUNS = """
SELECT
    history.model, history.configuration, run_id, began, runs.scored, runs.rollouts, runs.num_examples,
    runs.rollouts_per_example, runs.coverage, runs.cost, runs.env_version, runs.avg_reward, runs.stderr,
    runs.reward_examples, runs.lowest_reward, runs.highest_reward, runs.time_ms / 1000 AS seconds,
    CASE WHEN $metric = 'reward' THEN runs.avg_reward ELSE runs.avg_metrics[$metric] END AS value,
    {'environment': runs.env_version, 'environment''s code': runs.env_hash, 'scoring': runs.scoring_hash,
        'served model': list_sort(runs.served_models)::VARCHAR, 'dataset': runs.dataset_fingerprint,
        'Nightjar': runs.nightjar_version} AS versions,
    map_keys(runs.avg_metrics) AS metrics
FROM history JOIN runs USING (run_id) JOIN (SELECT run_id, began FROM finished_runs) USING (run_id)
WHERE history.env_id = $env AND ($model IS NULL OR history.model = $model)
QUALIFY row_number() OVER (PARTITION BY history.model, history.configuration ORDER BY began DESC, run_id) <= $most
ORDER BY history.model, history.configuration, began, run_id
"""


class Asked(BaseModel):
    env: str = ""
    model: str = ""
    metric: str = "reward"


@dataclass(frozen=True)
class Series:
    model: str
    runs: list[dict[str, Any]]
    """Rows of the query, oldest first. Each row names the run ``before`` it, and the last comparable run (``peer``)."""
    plot: Plot
    changed: list[tuple[int, dict[str, Any], str]]
    """For each mark of the plot: the mark's number, the run and a description of the change."""


@router.get("/history")
def show_history(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    warehouse: Warehouse = request.app.state.warehouse
    known = records(warehouse, _SERIES)
    parameters = {"env": asked.env, "model": asked.model or None, "metric": asked.metric, "most": MOST_RUNS}
    runs = records(warehouse, _RUNS, parameters) if asked.env else []
    return page(
        request,
        "history.html",
        asked=asked,
        known=known,
        choices={
            "env": sorted({one["env_id"] for one in known if one["env_id"]}),
            "model": sorted({one["model"] for one in known if one["model"] and asked.env in {"", one["env_id"]}}),
            "metric": ["reward", *sorted({name for run in runs for name in run["metrics"] or []})],
        },
        series=_all_series([run for run in runs if run["value"] is not None], _changes(warehouse, asked), asked.metric),
    )


def _changes(warehouse: Warehouse, asked: Asked) -> dict[str, Change]:
    if not asked.env:
        return {}
    try:
        found = trend(asked.env, model=asked.model or None, metric=asked.metric, warehouse=warehouse)
    except ConfigError:
        return {}
    return {change.run_id: change for series in found.series for change in series.changes}


def _all_series(runs: Sequence[dict[str, Any]], changes: Mapping[str, Change], metric: str) -> list[Series]:
    for run in runs:
        run["change"] = changes.get(run["run_id"])
        ends = _ends(run) if metric == "reward" else []
        run["low"], run["high"] = ends or (None, None)
    heights = [run[name] for run in runs for name in ("value", "low", "high") if run[name] is not None]
    up = Scale.over(heights, Plot.HEIGHT, 0)
    time = Scale.over([run["began"].timestamp() for run in runs], Plot.LEFT, Plot.RIGHT)
    grouped = groupby(runs, key=lambda run: (run["model"], run["configuration"]))
    return [_series(model or "no model", list(members), up, time, metric) for (model, _), members in grouped]


def _ends(run: Mapping[str, Any]) -> list[float]:
    """Returns the ends of the interval of the mean reward; an empty list if they are unknown."""
    found, _ = interval_of(summary_of(run))
    return [found.low, found.high] if isfinite(found.low) else []


def _series(model: str, runs: list[dict[str, Any]], up: Scale, time: Scale, metric: str) -> Series:
    peers: dict[tuple[Any, ...], dict[str, Any]] = {}
    for before, run in zip([None, *runs], runs, strict=False):
        run["before"], run["peer"] = before, None
        if not has_low_coverage(run["coverage"]):
            kind = (run["num_examples"], run["rollouts_per_example"], run["env_version"])
            run["peer"], peers[kind] = peers.get(kind), run
    changed = [(number, run, text) for number, (run, text) in enumerate(_changed_runs(runs), start=1)]
    marks = [
        Mark(time.place(run["began"].timestamp()), str(number), text, run["change"] is not None)
        for number, run, text in changed
    ]
    label = f"{metric} of {len(runs):,} runs of {model}, from {moment(runs[0]['began'])} to {moment(runs[-1]['began'])}"
    days = {f"{run['began']:%Y-%m-%d}": time.place(run["began"].timestamp()) for run in (runs[0], runs[-1])}
    below = [(place, day) for day, place in days.items()]
    points = {run["run_id"]: _point(run, up, time) for run in runs}
    joined = [(points[run["peer"]["run_id"]], points[run["run_id"]]) for run in runs if run["peer"]]
    plot = Plot(list(points.values()), up, below, marks, label, joined)
    return Series(model, runs, plot, changed)


def _changed_runs(runs: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    for run in runs:
        before = (run["before"] or run)["versions"]
        change: Change | None = run["change"]
        changes = [] if change is None else [_level_change(change)]
        changes += [
            f"{name}: {_short(before[name])} → {_short(value)}"
            for name, value in run["versions"].items()
            if before[name] != value
        ]
        if changes:
            yield run, "; ".join(changes)


def _level_change(change: Change) -> str:
    runs = "" if change.earliest == change.latest else f", at one of the runs from {change.earliest} to {change.latest}"
    return f"results changed by more than chance: mean {change.before:.4f} → {change.after:.4f}{runs}"


def _short(value: str | None) -> str:
    return "none" if value is None else value if len(value) <= len("0.1.0.dev123+abc") else f"{value[:12]}…"


def _point(run: dict[str, Any], up: Scale, time: Scale) -> Point:
    ends = [run["low"], run["high"]] if run["low"] is not None and run["high"] is not None else []
    text = f"{moment(run['began'])}: {run['value']:.4f}" + (f" [{ends[0]:.4f}, {ends[1]:.4f}]" if ends else "")
    text += f", {run['num_examples']:,} × {run['rollouts_per_example']:,}" if run["num_examples"] else ""
    is_low = has_low_coverage(run["coverage"])
    text += f", {percent(run['coverage'])} scored" if is_low else ""
    return Point(
        time.place(run["began"].timestamp()),
        up.place(run["value"]),
        [up.place(end) for end in ends],
        text,
        f"/runs/{quote(run['run_id'], safe='')}",
        is_low,
    )
