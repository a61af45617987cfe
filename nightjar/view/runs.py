"""The first page: all runs, with filters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from nightjar.errors import MissingWarehouseError
from nightjar.view.charts import Spark
from nightjar.view.columns import Columns
from nightjar.view.live import live_runs
from nightjar.view.notes import NOTED, by_run
from nightjar.view.orders import Order, an_order
from nightjar.view.pages import PageNumber, answers, one_of, page, records
from nightjar.warehouse import Warehouse

router = APIRouter()

ROWS = 50
_POINTS = 30

SORTS = {
    "started": "-started_at",
    "reward": "-avg_reward",
    "environment": "env_id",
    "model": "model",
    "status": "status",
    "examples": "-num_examples",
    "coverage": "coverage",
    "cost": "-cost",
    "time": "-time_ms",
    "failed": "-failed",
    "tokens": "-output_tokens",
}
"""The orders of runs, most of which have the name of a column. See ``Order``."""
GROUPS = {
    "environment": "env_id",
    "model": "model",
    "suite": "suite",
    "night": "began(started_at, finished_at, published_at)::DATE",
}
# Only runs of one kind are joined by a line: the same settings, size and version.
_KIND = """hash(
    settings(env_args, extra_env_kwargs, sampling_args), num_examples, rollouts_per_example, env_version
)"""
USUAL = {
    "status": "status",
    "history": "kind",
    "examples": "num_examples",
    "scored": "coverage",
    "cost": "cost",
    "time": "seconds",
    "tags": "tags",
    "version": "env_version",
    "started": "started_at",
}
"""The usual columns of a run, besides its environment, model and reward, and the fields of ``_RUNS`` that fill them."""
MORE = ("failed", "tokens", "suite", "arguments", "sampling")
_RUNS = """
SELECT
    run_id, env_id, model, status, suite, tags, started_at, avg_reward, stderr, reward_examples, lowest_reward,
    highest_reward, num_examples, rollouts_per_example, scored, failed, rollouts, coverage, cost,
    time_ms / 1000 AS seconds, env_version, env_args AS arguments,
    sampling_args AS sampling, input_tokens, output_tokens, count(*) OVER () AS found, {kind} AS kind,
    {group} AS "group", count(*) OVER (PARTITION BY {group}) AS group_size
FROM runs
WHERE ($env IS NULL OR env_id = $env) AND ($model IS NULL OR model = $model) AND ($suite IS NULL OR suite = $suite)
    AND ($status IS NULL OR status = $status) AND ($tag IS NULL OR list_contains(tags, $tag))
    AND ($q IS NULL OR contains(lower(concat_ws(' ', run_id, env_id, model, suite, tags)), lower($q)))
    AND part_of IS NULL
ORDER BY {group_order} NULLS LAST, {order}, run_id
LIMIT $limit OFFSET $offset
"""
_HISTORIES = f"""
WITH shown AS (
    SELECT
        env_id, model, {_KIND} AS kind, run_id, avg_reward AS reward,
        began(started_at, finished_at, published_at) AS began
    FROM segments.runs
    WHERE is_finished(status, run_id) AND isfinite(avg_reward) AND NOT has_low_coverage(coverage)
        AND (env_id, model) IN (SELECT (unnest($env_ids), unnest($models)))
    QUALIFY row_number() OVER (PARTITION BY env_id, model, kind ORDER BY began DESC, run_id) <= $points
)
SELECT env_id, model, kind, list({{run_id: run_id, reward: reward}} ORDER BY began, run_id) AS history
FROM shown GROUP BY env_id, model, kind
"""  # noqa: S608 - built from constants
_CHOICES = """
SELECT
    list_sort(array_agg(DISTINCT env_id)) AS env, list_sort(array_agg(DISTINCT model)) AS model,
    list_sort(array_agg(DISTINCT suite) FILTER (suite IS NOT NULL)) AS suite,
    list_sort(array_agg(DISTINCT status)) AS status
FROM segments.runs
"""


class Asked(BaseModel):
    q: str | None = None
    env: str | None = None
    model: str | None = None
    suite: str | None = None
    status: str | None = None
    tag: str | None = None
    columns: list[str] = []
    sort: Annotated[str, an_order(SORTS)] = "started"
    group: Annotated[str | None, one_of(GROUPS)] = None
    page: PageNumber = 1


@router.get("/")
def show_runs(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    warehouse: Warehouse = request.app.state.warehouse
    filters = {name: getattr(asked, name) or None for name in ("q", "env", "model", "suite", "status", "tag")}
    order = Order.of(asked.sort or "started", SORTS)
    group = GROUPS.get(asked.group or "", "NULL::VARCHAR")
    sql = _RUNS.format(
        order=order.sql if order.name != "reward" else f"has_low_coverage(coverage), {order.sql}",
        group=group,
        kind=_KIND,
        group_order=f"{group} DESC" if asked.group == "night" else group,
    )
    live = live_runs(request)
    try:
        parameters = {**filters, "limit": ROWS, "offset": ROWS * (asked.page - 1)}
        found, [choices], noted = answers(warehouse, (sql, parameters), (_CHOICES, None), (NOTED, None))
    except MissingWarehouseError:
        if not any(live.values()):
            raise
        found, choices, noted = [], dict.fromkeys(("env", "model", "suite", "status")), []
    return page(
        request,
        "runs.html",
        **live,
        runs=found,
        sparks=_sparks(warehouse, found),
        noted=by_run(noted),
        choices=choices,
        asked=asked,
        columns=Columns.of(USUAL, MORE, asked.columns, found, roomy=("tags", "version", "time")),
        count=found[0]["found"] if found else 0,
        rows=ROWS,
        sorts=SORTS,
        order=order,
        groups=GROUPS,
    )


def _sparks(warehouse: Warehouse, found: list[dict[str, Any]]) -> dict[str, Spark]:
    kinds = {(run["env_id"], run["model"]) for run in found}
    if not kinds:
        return {}
    env_ids, models = zip(*kinds, strict=True)
    rows = records(warehouse, _HISTORIES, {"env_ids": list(env_ids), "models": list(models), "points": _POINTS})
    histories = {(row["env_id"], row["model"], row["kind"]): row["history"] for row in rows}
    return {
        run["run_id"]: Spark.of(history, run["run_id"])
        for run in found
        if len(history := histories.get((run["env_id"], run["model"], run["kind"]), [])) > 1
    }
