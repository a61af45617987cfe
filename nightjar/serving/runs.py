"""The first page: the runs that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from nightjar.serving.templating import page
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.time_limit import QUERY_TIMEOUT_SECONDS

router = APIRouter()

ROWS = 50
SORTS = {
    "started": "started_at DESC NULLS LAST",
    "reward": "avg_reward DESC NULLS LAST",
    "cost": "cost DESC NULLS LAST",
    "time": "time_ms DESC NULLS LAST",
    "coverage": "coverage NULLS FIRST",
}
_RUNS = """
SELECT
    run_id, env_id, model, status, suite, tags, started_at, avg_reward, stderr, scored, failed, rollouts, coverage,
    cost, time_ms / 1000 AS seconds, env_version, count(*) OVER () AS found
FROM runs
WHERE ($env IS NULL OR env_id = $env) AND ($model IS NULL OR model = $model) AND ($suite IS NULL OR suite = $suite)
    AND ($status IS NULL OR status = $status) AND ($tag IS NULL OR list_contains(tags, $tag))
    AND ($q IS NULL OR contains(lower(concat_ws(' ', run_id, env_id, model, suite, tags)), lower($q)))
    AND part_of IS NULL
ORDER BY {order}, run_id
LIMIT $limit OFFSET $offset
"""
_CHOICES = """
SELECT
    list_sort(array_agg(DISTINCT env_id)) AS env, list_sort(array_agg(DISTINCT model)) AS model,
    list_sort(array_agg(DISTINCT suite) FILTER (suite IS NOT NULL)) AS suite,
    list_sort(array_agg(DISTINCT status)) AS status
FROM runs
"""


class Asked(BaseModel):
    """What somebody wants to see of the runs; an empty text is nothing."""

    q: str | None = None
    env: str | None = None
    model: str | None = None
    suite: str | None = None
    status: str | None = None
    tag: str | None = None
    sort: str = "started"
    page: int = 1


@router.get("/")
def runs(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    """Shows the runs, the newest first."""
    warehouse: Warehouse = request.app.state.warehouse
    filters = {name: getattr(asked, name) or None for name in ("q", "env", "model", "suite", "status", "tag")}
    order, number = SORTS.get(asked.sort, SORTS["started"]), max(1, asked.page)
    paging = {"limit": ROWS, "offset": ROWS * (number - 1)}
    found = records(warehouse, _RUNS.format(order=order), {**filters, **paging})
    [choices] = records(warehouse, _CHOICES)
    count = found[0]["found"] if found else 0
    return page(
        request,
        "runs.html",
        runs=found,
        choices=choices,
        asked=asked,
        count=count,
        number=number,
        rows=ROWS,
        sorts=SORTS,
    )


def records(
    warehouse: Warehouse,
    sql: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
) -> list[dict[str, Any]]:
    """Returns the rows of an answer, each from column to value."""
    answer = warehouse.query(sql, parameters, timeout_seconds=timeout_seconds)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
