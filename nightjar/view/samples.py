"""The samples of a run: one row per example, with a strip of its rollouts."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from nightjar.errors import MissingWarehouseError, WarehouseError
from nightjar.view.live_run import LiveRun
from nightjar.view.notes import IS_NOTED
from nightjar.view.pages import PageNumber, answers, one_of, page, records, user_query
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import AskedQuery

router = APIRouter()

ROWS = 50
TIMEOUT_SECONDS = 10.0
MOST_NEIGHBOURS = 10_000
MOST_SQUARES = 64
SORTS = {
    "example": "example_id",
    "worst": "mean NULLS FIRST",
    "best": "mean DESC NULLS LAST",
    "spread": "spread DESC NULLS LAST",
    "longest": "output_tokens DESC NULLS LAST",
    "slowest": "total_ms DESC NULLS LAST",
}
KINDS = {
    "wrong": "count(*) FILTER (NOT correct) > 0",
    "right": "count(*) FILTER (correct) > 0",
    "failed": "count(error) > 0",
    "flaky": "bool_or(correct) AND NOT bool_and(correct)",
    "truncated": "bool_or(is_truncated)",
    "filtered": "bool_or(outcome = 'content_filtered')",
    "timed out": "bool_or(outcome = 'timed_out')",
    "empty": "bool_or(outcome = 'empty')",
    "noted": "bool_or(noted)",
}
_RUN = """
SELECT run_id, env_id, model, status, avg_reward, stderr, num_examples, rollouts_per_example, pass_threshold,
    run_dir, metadata -> 'reward_weights' AS reward_weights
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
_TEXT = "json_contains_text(concat_ws(' ', prompt, answer, completion), $q)"
# A user's condition stands in two kinds of brackets, so that it must be an expression and cannot close them.
_CONDITION = """(
{condition}
) AND len([
{condition}
]) = 1"""
_OTHER = """other AS (
    SELECT hash_a AS example_hash, correct_b >= 0.5 AS is_right FROM paired([$run], [$against])
),"""
_JOIN = "JOIN other ON grouped.example_hash = other.example_hash AND grouped.is_right <> other.is_right"
_SAMPLES = """
WITH {other} asked AS (
    SELECT
        example_id, example_hash, rollout_index, reward, correct, error, is_truncated, outcome, output_tokens, total_ms,
        {noted} AS noted, {holds} AS holds
    FROM rollouts WHERE run_id = $run
), grouped AS (
    SELECT
        example_id,
        any_value(example_hash) AS example_hash,
        avg(correct::INTEGER) >= 0.5 AS is_right,
        avg(reward) AS mean,
        stddev_samp(reward) AS spread,
        sum(output_tokens)::BIGINT AS output_tokens,
        sum(total_ms) AS total_ms,
        list(
            {{index: rollout_index, reward: reward, correct: correct, error: error, noted: noted}}
            ORDER BY rollout_index
        )[:{most}] AS strip,
        count(*) AS rollouts
    FROM asked GROUP BY example_id HAVING bool_or(holds) AND ({kind})
)
SELECT grouped.* EXCLUDE (example_hash, is_right), count(*) OVER () AS found
FROM grouped {join}
ORDER BY {order}, example_id LIMIT $limit OFFSET $offset
"""
_PROMPTS = """
SELECT example_id, left(any_value(coalesce(
    nullif(array_to_string(prompt ->> '$[#-1].content[*].text', ' '), ''), prompt ->> '$[#-1].content', prompt ->> '$'
)), 400) AS prompt
FROM rollouts WHERE run_id = $run AND list_contains($examples, example_id) GROUP BY example_id
"""


class Chosen(BaseModel):
    """The filters and order of the samples. An empty text means no filter."""

    q: str | None = None
    show: Annotated[str | None, one_of(KINDS)] = None
    where: str | None = None
    against: str | None = None
    sort: Annotated[str, one_of(SORTS)] = "example"

    @property
    def chosen(self) -> dict[str, str]:
        """The values that differ from the defaults, for links that keep the filters."""
        values = {name: getattr(self, name) for name in Chosen.model_fields}
        return {name: value for name, value in values.items() if value and (name, value) != ("sort", "example")}


class Asked(Chosen):
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
    return page(request, "samples.html", asked=asked, kinds=KINDS, sorts=SORTS, rows=ROWS, **shown)


def _published(request: Request, run_id: str, asked: Asked) -> dict[str, Any]:
    warehouse: Warehouse = request.app.state.warehouse
    problem, pairs = None, _pairs(warehouse, run_id, asked.against) if asked.against else None
    queries = (*run_queries(run_id), _examples(run_id, asked, ROWS, ROWS * (asked.page - 1)))
    try:
        with user_query() if asked.where else nullcontext():
            run, others, found = answers(warehouse, *queries, timeout_seconds=TIMEOUT_SECONDS)
    except WarehouseError as error:
        if not asked.where:
            raise
        problem = str(error)
        run, others, found = *answers(warehouse, *run_queries(run_id)), []
    return {
        "run": only_run(run, run_id),
        "is_published": True,
        "examples": _with_prompts(warehouse, run_id, found),
        "count": found[0]["found"] if found else 0,
        "problem": problem,
        "pairs": pairs,
        "others": others,
    }


def _unpublished(live: LiveRun, asked: Asked) -> dict[str, Any]:
    """Returns the samples of a run that is only on disk. These samples have no search, no order and no prompts."""
    found = live.examples(asked.show or "")
    return {
        "run": live.record,
        "is_published": False,
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


def neighbours(warehouse: Warehouse, run_id: str, asked: Chosen, example_id: int) -> list[dict[str, Any] | None]:
    """Returns the examples before and after an example, among the first 10,000 examples that match the filters."""
    try:
        with user_query() if asked.where else nullcontext():
            [found] = answers(warehouse, _examples(run_id, asked, MOST_NEIGHBOURS, 0), timeout_seconds=TIMEOUT_SECONDS)
    except WarehouseError:  # an invalid condition; the page of samples shows the error
        return [None, None]
    around = zip([None, *found], found, [*found[1:], None], strict=False)
    return next(([before, after] for before, one, after in around if one["example_id"] == example_id), [None, None])


def _examples(run_id: str, asked: Chosen, limit: int, skipped: int) -> AskedQuery:
    conditions = [_TEXT] * bool(asked.q) + [_CONDITION.format(condition=asked.where)] * bool(asked.where)
    sql = _SAMPLES.format(
        most=MOST_SQUARES,
        noted=IS_NOTED,
        holds=" AND ".join(conditions) or "true",
        kind=KINDS.get(asked.show or "", "true"),
        order=SORTS.get(asked.sort, SORTS["example"]),
        other=_OTHER if asked.against else "",
        join=_JOIN if asked.against else "",
    )
    values = {"run": run_id, "limit": limit, "offset": skipped}
    return sql, values | {name: value for name in ("q", "against") if (value := getattr(asked, name))}


def _with_prompts(warehouse: Warehouse, run_id: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds the beginnings of the prompts, and reads them for these examples only."""
    shown = [example["example_id"] for example in found]
    rows = records(warehouse, _PROMPTS, {"run": run_id, "examples": shown}) if shown else []
    prompts = {row["example_id"]: row["prompt"] for row in rows}
    return [{**example, "prompt": prompts.get(example["example_id"])} for example in found]
