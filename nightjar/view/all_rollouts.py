"""The rollouts of all runs, newest run first: ``/rollouts``, with filters, orders and columns as in a run's samples."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, BeforeValidator, FiniteFloat

from nightjar.view import sample_rows, samples
from nightjar.view.columns import Columns
from nightjar.view.notes import IS_NOTED
from nightjar.view.orders import METRIC, Order, an_order
from nightjar.view.pages import PageNumber, one_of, page
from nightjar.view.rollout_filters import Filtered
from nightjar.view.sample_rows import filtered_answers, measure_of, with_texts
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import AskedQuery

router = APIRouter()

ROWS = 50
KINDS = {name: of_rollouts for name, (_, of_rollouts) in sample_rows.KINDS.items() if name != "flaky"}
SORTS = {"newest": "-began"} | {name: sample_rows.SORTS[name] for name in ("worst", "best", "longest", "slowest")}
HEADINGS = {"started": "newest", "tokens": "longest", "time": "slowest"}
USUAL = {"environment": "env_id", "model": "model"} | {
    name: field for name, field in samples.USUAL.items() if name != "spread"
}
MORE = ("started", *samples.MORE)
_CONDITIONS = {
    "env": "env_id = $env",
    "model": "runs.model = $model",
    "error": "asked.error = $error",
    "least": "mean >= $least",
    "most": "mean <= $most",
}
"""Conditions of the filters of the same names."""
_ROLLOUTS = """
WITH runs AS (
    SELECT run_id, env_id, model, began(started_at, finished_at, published_at) AS began
    FROM segments.runs WHERE part_of(run_id) IS NULL
), asked AS (
    SELECT
        run_id, example_id, rollout_index, reward, reward AS mean, correct, error, output_tokens, total_ms, attempts,
        {noted} AS noted, {measure} AS measure
    FROM {rollouts} AS rollouts WHERE ({holds}) AND ({kind})
)
SELECT asked.*, env_id, runs.model, began, count(*) OVER () AS found
FROM asked JOIN runs USING (run_id) WHERE {condition}
ORDER BY {order}, began DESC NULLS LAST, run_id, example_id, rollout_index LIMIT $limit OFFSET $offset
"""
_CHOICES = """
SELECT
    list_sort(array_agg(DISTINCT env_id)) AS env, list_sort(array_agg(DISTINCT model)) AS model,
    list_sort(list_distinct(flatten(array_agg(map_keys(errors))))) AS error
FROM segments.runs
"""


class Asked(BaseModel):
    """The filters, order and columns of the list. An empty value means no filter; rewards are inclusive limits."""

    q: str | None = None
    env: str | None = None
    model: str | None = None
    error: str | None = None
    show: Annotated[str | None, one_of(KINDS)] = None
    least: Annotated[FiniteFloat | None, BeforeValidator(lambda given: given or None)] = None
    most: Annotated[FiniteFloat | None, BeforeValidator(lambda given: given or None)] = None
    where: str | None = None
    sort: Annotated[str, an_order(SORTS, of_metrics=True)] = "newest"
    columns: list[str] = []
    page: PageNumber = 1

    @property
    def filters(self) -> dict[str, Any]:
        """The values of the filters of ``_CONDITIONS`` that are chosen."""
        return {name: value for name in _CONDITIONS if (value := getattr(self, name)) not in (None, "")}


@router.get("/rollouts")
def show_rollouts(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    warehouse: Warehouse = request.app.state.warehouse
    order = Order.of(asked.sort or "newest", SORTS, of_metric="-measure")
    problem, [found, [choices]] = filtered_answers(warehouse, asked.where, _query(asked, order), (_CHOICES, None))
    rows = with_texts(warehouse, found)
    metrics = sorted({f"{METRIC}{name}" for row in rows for name in row["metrics"]})
    usual = USUAL | dict.fromkeys(metrics[: samples.MOST_METRICS], "metrics")
    return page(
        request,
        "all_rollouts.html",
        asked=asked,
        rollouts=rows,
        count=found[0]["found"] if found else 0,
        problem=problem,
        choices=choices,
        kinds=KINDS,
        sorts=SORTS,
        order=order,
        headings=HEADINGS | dict(zip(metrics, metrics, strict=True)),
        columns=Columns.of(usual, [*metrics, *MORE], asked.columns, rows),
        rows=ROWS,
    )


def _query(asked: Asked, order: Order) -> AskedQuery:
    filtered = Filtered.by(asked.q, asked.where)
    sql = _ROLLOUTS.format(
        noted=IS_NOTED,
        rollouts=filtered.relation,
        holds=filtered.holds,
        kind=KINDS[asked.show] if asked.show else "true",
        measure=measure_of(order),
        condition=" AND ".join(_CONDITIONS[name] for name in asked.filters) or "true",
        order=order.sql,
    )
    values: dict[str, Any] = asked.filters | {"limit": ROWS, "offset": ROWS * (asked.page - 1)}
    return sql, values | {name: value for name, value in (("q", asked.q), ("metric", order.metric)) if value}
