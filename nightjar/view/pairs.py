"""The samples of several runs side by side: ``/samples?run=FIRST&run=SECOND``. Examples are paired by content.

Without runs, leads to the rollouts of all runs.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel

from nightjar.reports.rollouts import TEXTS
from nightjar.view.pages import PageNumber, answers, one_of, page, records, redirect_to_runs
from nightjar.warehouse import Warehouse

router = APIRouter()

ROWS = 50
MOST_RUNS = 6
_MOST_ANSWERS = 64
SORTS = {
    "example": "first.example_id NULLS LAST, example_hash",
    "difference": "highest - lowest DESC NULLS LAST, first.example_id",
    "worst": "lowest NULLS LAST, first.example_id",
}
KINDS = {
    "different": "any_right AND any_wrong",
    "all right": "any_right AND NOT any_wrong AND runs = len($runs)",
    "all wrong": "any_wrong AND NOT any_right AND runs = len($runs)",
    "different rewards": "highest > lowest",
    "not in all": "runs < len($runs)",
}
"""Conditions on an example; a run is right if at least half of its rollouts are."""
_RUNS = """
SELECT
    run_id, env_id, model, started_at, avg_reward, stderr, num_examples, scored, rollouts, coverage, reward_examples,
    lowest_reward, highest_reward
FROM segments.runs WHERE list_contains($runs, run_id) AND part_of(run_id) IS NULL
"""
_EXAMPLES = """
WITH sides AS (
    SELECT
        any_value(example_hash) AS example_hash, run_id, example_id, avg(reward) AS mean,
        avg(correct::INTEGER) >= 0.5 AS is_right, count(reward) AS scored, count(error) AS failed,
        arg_min(rollout_index, reward) AS worst
    FROM segments.rollouts WHERE list_contains($runs, run_id)
    GROUP BY run_id, example_id
), examples AS (
    SELECT
        example_hash, count(DISTINCT run_id) AS runs, max(mean) AS highest, min(mean) AS lowest,
        coalesce(bool_or(is_right), false) AS any_right, coalesce(bool_or(NOT is_right), false) AS any_wrong,
        any_value(sides) FILTER (run_id = $runs[1]) AS first, list(sides) AS sides
    FROM sides WHERE example_hash IS NOT NULL GROUP BY example_hash
)
SELECT example_hash, sides, count(*) OVER () AS found FROM examples WHERE {kind}
ORDER BY {order} LIMIT $limit OFFSET $offset
"""
_TEXTS = f"""
SELECT run_id, example_hash, {TEXTS}
FROM rollouts
WHERE list_contains($runs, run_id) AND list_contains($hashes, example_hash) AND rollout_index < $most
"""  # noqa: S608 - built from constants


class Asked(BaseModel):
    """The runs, in the order of their columns. ``ticked`` runs are ordered by their start."""

    run: list[str] = []
    ticked: list[str] = []
    show: Annotated[str | None, one_of(KINDS)] = None
    sort: Annotated[str, one_of(SORTS)] = "example"
    page: PageNumber = 1


@router.get("/samples")
def show_pairs(request: Request, asked: Annotated[Asked, Query()]) -> Response:
    warehouse: Warehouse = request.app.state.warehouse
    if asked.ticked:
        return redirect_to_runs(warehouse, "/samples", asked.ticked)
    if not any(asked.run):
        return RedirectResponse("/rollouts", 303)
    run_ids = list(dict.fromkeys(run for run in asked.run if run))[:MOST_RUNS]
    sql = _EXAMPLES.format(kind=KINDS.get(asked.show or "", "true"), order=SORTS[asked.sort or "example"])
    values = {"runs": run_ids, "limit": ROWS, "offset": ROWS * (asked.page - 1)}
    found, examples = answers(warehouse, (_RUNS, {"runs": run_ids}), (sql, values))
    runs = {run["run_id"]: run for run in found}
    if missing := [run_id for run_id in run_ids if run_id not in runs]:
        raise HTTPException(404, f"There is no run {missing[0]!r} in this warehouse.")
    return page(
        request,
        "pairs.html",
        asked=asked,
        runs=[runs[run_id] for run_id in run_ids],
        examples=_with_texts(warehouse, run_ids, examples),
        count=examples[0]["found"] if examples else 0,
        kinds=KINDS,
        sorts=SORTS,
        rows=ROWS,
    )


def _with_texts(warehouse: Warehouse, run_ids: list[str], examples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds prompt and target, and to each run's side its answers, the most frequent first."""
    hashes = [example["example_hash"] for example in examples]
    parameters = {"runs": run_ids, "hashes": hashes, "most": _MOST_ANSWERS}
    texts: dict[str, dict[str, Any]] = {}
    given: dict[tuple[str, str], Counter[str]] = {}
    for row in records(warehouse, _TEXTS, parameters) if hashes else []:
        texts.setdefault(row["example_hash"], row)
        if row["answer"] is not None:
            given.setdefault((row["run_id"], row["example_hash"]), Counter())[row["answer"]] += 1
    for example in examples:
        for side in example["sides"]:
            side["answers"] = given.get((side["run_id"], example["example_hash"]), Counter()).most_common()
    return [
        {**texts[example["example_hash"]], "sides": {side["run_id"]: side for side in example["sides"]}}
        for example in examples
    ]
