"""The samples of a run: one row per example, with a strip of its rollouts, or one row per rollout (``?by=rollout``)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from nightjar.errors import MissingWarehouseError
from nightjar.view.columns import Columns
from nightjar.view.live_run import LiveRun
from nightjar.view.orders import METRIC
from nightjar.view.pages import PageNumber, page, records
from nightjar.view.sample_rows import KINDS, LISTS, SORTS, Chosen, filtered_answers, order_of, samples_query, with_texts
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import AskedQuery

router = APIRouter()

ROWS = 50
HEADINGS = {"tokens": "longest", "time": "slowest", "spread": "spread"}
"""The orders that the headings of columns choose."""
USUAL = {
    "id": "id",
    "prompt": "prompt",
    "target": "target",
    "answer": "answers",
    "spread": "spread",
    "error": "error",
    "tokens": "output_tokens",
}
"""The usual columns of an example or a rollout, besides its rewards, and the fields that fill them.

A column for each metric follows them.
"""
MORE = ("time", "attempts", "ended")
MOST_METRICS = 4
"""The number of metrics that are usual columns."""
_RUN = """
SELECT run_id, env_id, model, status, avg_reward, stderr, num_examples, rollouts_per_example, pass_threshold,
    run_dir, map_keys(avg_metrics) AS metrics, metadata -> 'reward_weights' AS reward_weights
FROM segments.runs WHERE run_id = $run
"""
_COMPARABLE = """
SELECT run_id, model, started_at FROM segments.runs
WHERE env_id = (SELECT env_id FROM segments.runs WHERE run_id = $run) AND run_id <> $run AND part_of(run_id) IS NULL
ORDER BY started_at DESC NULLS LAST, run_id LIMIT 100
"""
_AGAINST = """
SELECT
    (SELECT count(*) FROM segments.runs WHERE run_id = $against) AS runs,
    (SELECT count(*) FROM paired([$run], [$against]) WHERE difference IS NOT NULL) AS pairs
"""


class Asked(Chosen):
    columns: list[str] = Field([])
    page: PageNumber = 1


@router.get("/runs/{run_id}/samples")
def show_samples(request: Request, run_id: str, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    try:
        shown = _published(request, run_id, asked)
    except (HTTPException, MissingWarehouseError):
        live: LiveRun | None = request.app.state.live.find(run_id, is_urgent=True)
        if live is None:
            raise
        shown = _unpublished(live, asked)
    metrics = [f"{METRIC}{name}" for name in shown["run"].get("metrics") or []]
    usual = USUAL | dict.fromkeys(metrics[:MOST_METRICS], "metrics")
    columns = Columns.of(usual, [*metrics, *MORE], asked.columns if shown["is_published"] else (), shown["examples"])
    chosen = {"asked": asked, "kinds": KINDS, "sorts": SORTS, "lists": LISTS, "rows": ROWS, "columns": columns,
              "order": order_of(asked), "headings": HEADINGS | dict(zip(metrics, metrics, strict=True))}  # fmt: skip
    return page(request, "samples.html", **chosen, **shown)


def _published(request: Request, run_id: str, asked: Asked) -> dict[str, Any]:
    warehouse: Warehouse = request.app.state.warehouse
    pairs = _pairs(warehouse, run_id, asked.against) if asked.against else None
    query = samples_query(run_id, asked, ROWS, ROWS * (asked.page - 1))
    problem, [found, run, others] = filtered_answers(warehouse, asked.where, query, *run_queries(run_id))
    return {
        "run": only_run(run, run_id),
        "is_published": True,
        "examples": with_texts(warehouse, found),
        "count": found[0]["found"] if found else 0,
        "problem": problem,
        "pairs": pairs,
        "others": others,
    }


def _unpublished(live: LiveRun, asked: Asked) -> dict[str, Any]:
    """Returns the examples of a run that is only on disk. They have no search, no order and no texts."""
    found = live.examples(asked.show or "")
    return {
        "run": live.record,
        "is_published": False,
        "others": [],
        "examples": found[ROWS * (asked.page - 1) : ROWS * asked.page],
        "count": len(found),
        "problem": None,
        "pairs": None,
    }


def _pairs(warehouse: Warehouse, run_id: str, against: str) -> int:
    [found] = records(warehouse, _AGAINST, {"run": run_id, "against": against})
    if not found["runs"]:
        raise HTTPException(404, f"There is no run {against!r} in this warehouse to compare with.")
    return int(found["pairs"])


def run_queries(run_id: str) -> tuple[AskedQuery, AskedQuery]:
    return (_RUN, {"run": run_id}), (_COMPARABLE, {"run": run_id})


def only_run(found: list[dict[str, Any]], run_id: str) -> dict[str, Any]:
    if not found:
        raise HTTPException(404, f"There is no run {run_id!r} in this warehouse.")
    return found[0]
