"""Full-text search in questions, answers and completions. The newest runs are searched first, until the time is up."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from nightjar.errors import WarehouseError
from nightjar.view.conversation import plain_text
from nightjar.view.pages import Whole, page, records
from nightjar.view.rollout_filters import TEXT_IN_EXAMPLE
from nightjar.warehouse import Warehouse

router = APIRouter()

SECONDS = 1.5
"""Time limit of a search. The page shows the matches found by then."""
MOST = 50
"""The number of matches on a page. The remaining runs are searched on the next page."""
MOST_OF_A_RUN = 5
MOST_EXAMPLES = 10_000
_AROUND = 80
_LONGEST = 200_000
"""Maximum size of a completion in bytes. Of longer completions, only the raw JSON around the match is read."""
_FIRST_RUNS = 16
_SHARE = 0.5
"""Share of the remaining time that the next batch of runs may take, estimated from the pace so far."""

_RUNS = """
SELECT run_id FROM segments.runs WHERE part_of(run_id) IS NULL ORDER BY started_at DESC NULLS LAST, run_id
"""
_ASKED = f"SELECT content_id FROM segments.examples WHERE {TEXT_IN_EXAMPLE} LIMIT $most"  # noqa: S608
# If the question or answer of an example matches, one rollout per run is enough.
_FOUND = """
WITH found AS (
    SELECT
        run_id, example_id, rollout_index, reward, correct, error, content_id,
        CASE
            WHEN NOT messages_contain_text(completion, $q) THEN NULL
            WHEN strlen(completion) <= $longest THEN completion
            ELSE to_json(regexp_extract(
                completion, '.{{0,80}}' || regexp_escape((to_json($q::VARCHAR)::VARCHAR)[2:-2]) || '.{{0,80}}', 0, 'is'
            ))
        END AS completion
    FROM segments.rollouts
    WHERE run_id IN (SELECT unnest($runs)) AND (messages_contain_text(completion, $q) {or_asked})
), chosen AS (
    FROM found
    QUALIFY completion IS NOT NULL
        OR row_number() OVER (PARTITION BY run_id, example_id ORDER BY completion IS NULL, rollout_index) = 1
)
FROM chosen
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY completion IS NULL, example_id, rollout_index) <= $most
"""
_EXAMPLES = """
SELECT content_id, any_value(prompt) AS prompt, any_value(answer) AS answer FROM segments.examples
WHERE list_contains($asked, content_id) GROUP BY content_id
"""
_NAMES = "SELECT run_id, env_id, model, started_at FROM segments.runs WHERE list_contains($runs, run_id)"


@dataclass(frozen=True)
class Search:
    rows: list[dict[str, Any]]
    searched: int
    runs: int
    with_questions: bool


@router.get("/search")
def show_search(request: Request, q: str = "", skip: Annotated[Whole, Query(ge=0)] = 0) -> HTMLResponse:
    """Shows rollouts that contain a text. ``skip`` is the number of newest runs that are already searched."""
    found = _search(request.app.state.warehouse, q, skip) if q.strip() else None
    return page(request, "search.html", q=q, found=found, most=MOST, most_of_a_run=MOST_OF_A_RUN)


def _search(warehouse: Warehouse, text: str, skip: int) -> Search:
    began = time.monotonic()
    asked = _asked(warehouse, text)
    sql = _FOUND.format(or_asked="OR content_id IN (SELECT unnest($asked))" if asked else "")
    runs = [row["run_id"] for row in records(warehouse, _RUNS)]
    rows: list[dict[str, Any]] = []
    searched, size = skip, _FIRST_RUNS
    while searched < len(runs) and len(rows) < MOST and (left := SECONDS - (time.monotonic() - began)) > 0:
        batch, started = runs[searched : searched + size], time.monotonic()
        values = {"runs": batch, "q": text, "most": MOST_OF_A_RUN, "longest": _LONGEST}
        values |= {"asked": asked} if asked else {}
        try:
            rows += records(warehouse, sql, values, timeout_seconds=left + SECONDS / 4)
        except WarehouseError:
            if searched == skip:
                raise
            break
        searched += len(batch)
        pace = len(batch) / (time.monotonic() - started)
        size = max(_FIRST_RUNS, int(pace * (SECONDS - (time.monotonic() - began)) * _SHARE))
    shown = _first(rows, {run_id: place for place, run_id in enumerate(runs)})
    if len(shown) < len(rows):
        searched = runs.index(shown[-1]["run_id"]) + 1
    return Search(_described(warehouse, shown, text), searched, len(runs), with_questions=asked is not None)


def _asked(warehouse: Warehouse, text: str) -> list[int] | None:
    """Returns the examples whose question or answer contains a text, or None if there was not enough time."""
    try:
        found = records(warehouse, _ASKED, {"q": text, "most": MOST_EXAMPLES}, timeout_seconds=SECONDS / 2)
    except WarehouseError:
        return None
    return [row["content_id"] for row in found]


def _first(rows: list[dict[str, Any]], places: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns the rollouts in the order of their runs, up to the end of the run that reaches the limit."""
    ordered = sorted(rows, key=lambda row: (places[row["run_id"]], row["example_id"], row["rollout_index"]))
    last = places[ordered[MOST - 1]["run_id"]] if len(ordered) > MOST else len(places)
    return [row for row in ordered if places[row["run_id"]] <= last]


def _described(warehouse: Warehouse, rows: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    names = {row["run_id"]: row for row in records(warehouse, _NAMES, {"runs": [row["run_id"] for row in rows]})}
    asked = [row["content_id"] for row in rows if row["completion"] is None]
    examples = {row["content_id"]: row for row in records(warehouse, _EXAMPLES, {"asked": asked})} if asked else {}
    return [
        {**row, **names[row["run_id"]], **_placed(row["completion"], examples.get(row["content_id"]), text)}
        for row in rows
    ]


def _placed(completion: str | None, example: Mapping[str, Any] | None, text: str) -> dict[str, Any]:
    if completion is not None or example is None:
        return {"where": "completion", "passage": _passage(plain_text(json.loads(completion or "null")), text)}
    if text.lower() in (example["answer"] or "").lower():
        return {"where": "answer", "passage": _passage(example["answer"], text)}
    return {"where": "question", "passage": _passage(plain_text(json.loads(example["prompt"])), text)}


def _passage(said: str, text: str) -> tuple[str, str, str]:
    at = said.lower().find(text.lower())
    if at < 0:  # outside the shown part of a long text, or across two passages
        return said[: 2 * _AROUND], "", ""
    end = at + len(text)
    return said[max(0, at - _AROUND) : at], said[at:end], said[end : end + _AROUND]
