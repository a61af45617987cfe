"""The page of a run: failures, results, cost and configuration, or progress while the run is only on disk."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from nightjar.analysis import RunStatistics, describe_run
from nightjar.analysis.pairs import settings_of
from nightjar.core.failures import recorded_failures, shown_outcomes
from nightjar.errors import ConfigError, MissingWarehouseError
from nightjar.evaluation.resuming import rescoring_command, restored_config
from nightjar.hosting.server import configured_prefect_api, page_of
from nightjar.hosting.state import read_state
from nightjar.importers import inspect_reader
from nightjar.reports.formats import durations
from nightjar.reports.rollouts import BARS, KINDS, RUN, TOGETHER, failures_of
from nightjar.reports.statistics import pass_rows, run_findings
from nightjar.view.charts import histogram
from nightjar.view.live import is_published
from nightjar.view.live_run import LiveRun
from nightjar.view.notes import NOTED, by_run
from nightjar.view.pages import answers, count, number, page, records
from nightjar.warehouse import Warehouse

router = APIRouter()

_BEFORE = """
WITH shown AS (
    SELECT env_id, model, began(started_at, finished_at, published_at) AS began
    FROM segments.runs WHERE run_id = $run_id
)
SELECT run_id, avg_reward, began(started_at, finished_at, published_at) AS began FROM segments.runs
WHERE env_id = (SELECT env_id FROM shown) AND model IS NOT DISTINCT FROM (SELECT model FROM shown)
    AND is_finished(status, run_id) AND began(started_at, finished_at, published_at) < (SELECT began FROM shown)
ORDER BY began DESC, run_id LIMIT 1
"""
_FAILED_ATTEMPTS = """
SELECT
    example_id, rollout_index, attempt, finished_at, coalesce(error_chain, error) AS chain,
    left(error_message, 2000) AS message, count(*) OVER () AS found
FROM segments.attempts WHERE run_id = $run_id AND error IS NOT NULL
ORDER BY finished_at DESC NULLS LAST, example_id, rollout_index LIMIT $most
"""
_WITH_PREFIX = "SELECT run_id FROM segments.runs WHERE starts_with(run_id, $prefix) ORDER BY run_id LIMIT $most"
_OVERRULED = "FROM overruled_runs WHERE run_id = $run_id"
_PASS_HEADINGS = ("k", "pass@k: at least one of k right", "pass^k: all k right")
_REPORTED_HEADINGS = ("Score", "Epochs", "Metric", "Value")
_SHOWN_ATTEMPTS = 10
_SHOWN_IDS = 5
_FILES = ("results.jsonl", "attempts.jsonl", "requests.jsonl", "metadata.json", "config.json")


@router.get("/runs/{run_id}")
def show_run(request: Request, run_id: str) -> Response:
    """Shows a run. The beginning of an id redirects to the run."""
    warehouse: Warehouse = request.app.state.warehouse
    live: LiveRun | None
    try:
        shown = _published(request, warehouse, run_id)
        live = request.app.state.live.find(run_id)
        live = live if live and not is_published(request, live) else None
    except (HTTPException, MissingWarehouseError) as error:
        if (live := request.app.state.live.find(run_id, is_urgent=True)) is None:
            if isinstance(error, HTTPException) and (full_id := _full_id(warehouse, run_id)):
                return RedirectResponse(f"/runs/{quote(full_id, safe='')}", 303)
            raise
        shown = {"run": live.record, "before": None, "is_published": False}
    run = shown["run"]
    prefect = _prefect_page(run["flow_run_id"])
    return page(request, "run.html", live=live, prefect=prefect, files=_files(run["run_dir"]), **shown)


def _published(request: Request, warehouse: Warehouse, run_id: str) -> dict[str, Any]:
    key = {"run_id": run_id}
    attempts_query = (_FAILED_ATTEMPTS, {**key, "most": _SHOWN_ATTEMPTS})
    found, earlier, noted, attempts = answers(warehouse, (RUN, key), (_BEFORE, key), (NOTED, None), attempts_query)
    if not found:
        raise HTTPException(404, f"There is no run {run_id!r} in {warehouse.location}.")
    [run] = found
    metadata = json.loads(run["metadata"] or "{}")
    statistics, rollouts = _of_all_rollouts(warehouse, run_id, run["version"])
    before = earlier[0] if earlier else None
    notes = by_run(noted).get(run_id)
    return {
        "run": run,
        "is_published": True,
        "before": before,
        "error": metadata.get("error"),
        "classes": recorded_failures(metadata),
        "failed_attempts": attempts,
        "failures": failures_of(rollouts["errors"] or []),
        "outcomes": shown_outcomes({one["outcome"]: one["count"] for one in rollouts["outcomes"] or []}),
        "told": run_findings(statistics, is_headed=False),
        "noted": notes,
        "overruled": records(warehouse, _OVERRULED, key) if notes and notes["overruled"] else [],
        "rewards": histogram(rollouts["rewards"] or []),
        "tables": [
            ("pass@k", _PASS_HEADINGS, pass_rows(statistics.pass_rates) if statistics.pass_rates[1:] else []),
            (
                "Metrics",
                ("Metric", "Mean"),
                [(name, number(mean)) for name, mean in (run["avg_metrics"] or {}).items()],
            ),
            ("Reported by Inspect", _REPORTED_HEADINGS, _reported_rows(metadata.get("original") or {})),
            ("Per rollout", ("Measure", "p50", "p90", "p99"), _spread_rows(rollouts["spreads"])),
        ],
        "settings": _settings(warehouse, run_id, before),
        "config": json.dumps(json.loads(run["config"] or "{}"), indent=2, ensure_ascii=False),
        "command": _command(request, run),
    }


def _reported_rows(original: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns the metrics of an imported log; with several epochs, Inspect reports them for each reducer."""
    scores = original.get("scores") or () if original.get("program") == inspect_reader.PROGRAM else ()
    return [
        (score["name"], score["reducer"] or "–", name, "–" if value is None else number(value))
        for score in scores
        for name, value in score["metrics"].items()
    ]


def _spread_rows(spreads: Mapping[str, Sequence[float] | None]) -> list[tuple[str, ...]]:
    return [
        (name, *([count(int(value)) for value in values] if isinstance(values[0], int) else durations(values)))
        for name, values in spreads.items()
        if values
    ]


def _full_id(warehouse: Warehouse, prefix: str) -> str | None:
    """Returns the id that begins with the prefix, or None. Raises 404 if several ids begin with the prefix."""
    found = [row["run_id"] for row in records(warehouse, _WITH_PREFIX, {"prefix": prefix, "most": _SHOWN_IDS + 1})]
    if len(found) > 1:
        listed = ", ".join(found[:_SHOWN_IDS]) + (", …" if len(found) > _SHOWN_IDS else "")
        raise HTTPException(404, f"Several run ids begin with {prefix!r}: {listed}. Give more of the id.")
    return found[0] if found else None


@lru_cache(maxsize=100)
def _of_all_rollouts(
    warehouse: Warehouse,
    run_id: str,
    version: str,  # noqa: ARG001 - part of the key
) -> tuple[RunStatistics, dict[str, Any]]:
    """Returns the statistics of a run and the row of ``TOGETHER``, cached until another version is published."""
    [rollouts] = records(warehouse, TOGETHER, {"run_id": run_id, "bars": BARS, "kinds": KINDS})
    return describe_run(run_id, warehouse=warehouse), rollouts


def _prefect_page(flow_run_id: str | None) -> str | None:
    up = read_state()
    api = configured_prefect_api() or (up.api_url if up else None)
    return page_of(flow_run_id, api) if flow_run_id and api else None


def _files(run_dir: str | None) -> dict[str, int]:
    paths = [Path(run_dir) / name for name in _FILES] if run_dir else []
    return {path.name: path.stat().st_size for path in paths if path.is_file()}


def _settings(warehouse: Warehouse, run_id: str, before: Mapping[str, Any] | None) -> list[tuple[str, Any, Any, bool]]:
    found = settings_of(warehouse, [run_id, *([before["run_id"]] if before else [])])
    own = found.get(run_id, {})  # the run or the earlier run may have been removed just now
    earlier = found.get(before["run_id"], own) if before else own
    return [(name, value, earlier[name], value != earlier[name]) for name, value in own.items()]


def _command(request: Request, run: Mapping[str, Any]) -> str | None:
    """Returns the run's command, or None if the configuration of the run is unknown, as for imported runs."""
    command_of = request.app.state.command_of
    saved = json.loads(run["config"] or "{}")
    if (rescoring := rescoring_command(saved)) is not None:
        return shlex.join(rescoring)
    try:
        config = restored_config(saved)
    except ConfigError:
        return None
    return shlex.join(command_of(config) if command_of else ["nightjar", "eval", "view-config", run["run_id"]])
