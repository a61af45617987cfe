"""The samples of a run: one row per example, with a strip of its rollouts, or one row per rollout (``?by=rollout``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from nightjar.errors import MissingWarehouseError, WarehouseError
from nightjar.reports.rollouts import TEXTS, TURNS, ending
from nightjar.view.columns import Columns
from nightjar.view.live_run import LiveRun
from nightjar.view.notes import IS_NOTED
from nightjar.view.orders import METRIC, Order, an_order
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
    "worst": "mean",
    "best": "-mean",
    "spread": "-spread",
    "longest": "-output_tokens",
    "slowest": "-total_ms",
}
"""The orders of examples and of rollouts, besides that of each metric. See ``Order``."""
HEADINGS = {"tokens": "longest", "time": "slowest", "spread": "spread"}
"""The orders that the headings of columns choose."""
KINDS = {
    "wrong": ("count(*) FILTER (NOT correct) > 0", "NOT correct"),
    "right": ("count(*) FILTER (correct) > 0", "correct"),
    "failed": ("count(error) > 0", "error IS NOT NULL"),
    "flaky": ("bool_or(correct) AND NOT bool_and(correct)", "is_flaky"),
    "truncated": ("bool_or(is_truncated)", "is_truncated"),
    "filtered": ("bool_or(outcome = 'content_filtered')", "outcome = 'content_filtered'"),
    "timed out": ("bool_or(outcome = 'timed_out')", "outcome = 'timed_out'"),
    "empty": ("bool_or(outcome = 'empty')", "outcome = 'empty'"),
    "noted": ("bool_or(noted)", "noted"),
}
"""Conditions on an example and on a rollout."""
LISTS = ("example", "rollout")
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
_TEXT = "json_contains_text(concat_ws(' ', prompt, answer, completion), $q)"
# A user's condition stands in two kinds of brackets, so that it must be an expression and cannot close them.
_CONDITION = """(
{condition}
) AND len([
{condition}
]) = 1"""
_OUTCOME = "outcome_of(error, error_chain, stop_condition, is_truncated)"
"""What the view ``rollouts`` has, too. The view also has the texts, for conditions, and takes twice as long."""
_OTHER = """other AS (
    SELECT hash_a AS example_hash, correct_b >= 0.5 AS is_right FROM paired([$run], [$against])
),"""
_JOIN = "JOIN other ON grouped.example_hash = other.example_hash AND grouped.is_right <> other.is_right"
_SAMPLES = """
WITH {other} asked AS (
    SELECT
        example_id, example_hash, rollout_index, reward, correct, error, is_truncated, {outcome} AS outcome,
        output_tokens, total_ms, {noted} AS noted, {holds} AS holds,
        {measure} AS measure
    FROM {rollouts} AS rollouts WHERE run_id = $run
), grouped AS (
    SELECT
        example_id,
        any_value(example_hash) AS example_hash,
        avg(correct::INTEGER) >= 0.5 AS is_right,
        avg(reward) AS mean,
        stddev_samp(reward) AS spread,
        avg(measure) AS measure,
        sum(output_tokens)::BIGINT AS output_tokens,
        sum(total_ms) AS total_ms,
        count(*) AS rollouts
    FROM asked GROUP BY example_id HAVING bool_or(holds) AND ({kind})
), shown AS (
    SELECT grouped.* EXCLUDE (example_hash, is_right), count(*) OVER () AS found
    FROM grouped {join}
    ORDER BY {order}, example_id LIMIT $limit OFFSET $offset
), strips AS (
    SELECT
        example_id,
        list(
            {{index: rollout_index, reward: reward, correct: correct, error: error, noted: {noted}}}
            ORDER BY rollout_index
        )[:{most}] AS strip
    FROM segments.rollouts WHERE run_id = $run AND example_id IN (SELECT example_id FROM shown)
    GROUP BY example_id
)
FROM shown JOIN strips USING (example_id) ORDER BY {order}, example_id
"""
_ROLLOUTS = """
WITH {other} asked AS (
    SELECT
        example_id, example_hash, rollout_index, reward, correct, error, is_truncated, {outcome} AS outcome,
        output_tokens, total_ms, attempts, {noted} AS noted, {holds} AS holds, {measure} AS measure,
        reward AS mean, {of_examples}
    FROM {rollouts} AS rollouts WHERE run_id = $run
    WINDOW same AS (PARTITION BY example_id)
), grouped AS (FROM asked WHERE holds AND ({kind}))
SELECT grouped.* EXCLUDE (example_hash, holds, is_flaky, is_right), count(*) OVER () AS found
FROM grouped {join}
ORDER BY {order}, example_id, rollout_index LIMIT $limit OFFSET $offset
"""
# What a rollout has from its example; computed only if used, because the windows take as long as all the rest.
_OF_EXAMPLES = """
        bool_or(correct) OVER same AND NOT bool_and(correct) OVER same AS is_flaky,
        avg(correct::INTEGER) OVER same >= 0.5 AS is_right, stddev_samp(reward) OVER same AS spread
"""
_NO_EXAMPLES = "NULL AS is_flaky, NULL AS is_right, NULL AS spread"
_TEXTS = f"""
SELECT
    example_id, rollout_index, metrics, stop_condition, {TURNS} AS turns, state ->> 'sample_id' AS id, {TEXTS}
FROM rollouts
WHERE run_id = $run AND list_contains($examples, example_id) AND list_contains($indexes, rollout_index)
ORDER BY example_id, rollout_index
"""  # noqa: S608 - built from constants


class Chosen(BaseModel):
    """The filters and order of the samples. An empty text means no filter."""

    q: str | None = None
    show: Annotated[str | None, one_of(KINDS)] = None
    where: str | None = None
    against: str | None = None
    sort: Annotated[str, an_order(SORTS, of_metrics=True)] = "example"
    by: Annotated[str, one_of(LISTS)] = "example"

    @property
    def chosen(self) -> dict[str, str]:
        """The values that differ from the defaults, for links that keep the filters."""
        values = {name: getattr(self, name) for name in Chosen.model_fields}
        return {name: value for name, value in values.items() if value not in ("", Chosen.model_fields[name].default)}


class Asked(Chosen):
    columns: list[str] = []
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
        "examples": _with_texts(warehouse, run_id, found),
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


def neighbours(
    warehouse: Warehouse, run_id: str, asked: Chosen, example_id: int, index: int
) -> list[dict[str, int] | None]:
    """Returns the rollouts to open before and after a rollout, among the first 10,000 rows that match the filters.

    In a list of examples, these are rollouts of other examples: the first that is not right, if there is one.
    """
    try:
        with user_query() if asked.where else nullcontext():
            [found] = answers(warehouse, _examples(run_id, asked, MOST_NEIGHBOURS, 0), timeout_seconds=TIMEOUT_SECONDS)
    except WarehouseError:  # an invalid condition; the page of samples shows the error
        return [None, None]
    rows = [{"example_id": row["example_id"], "index": _first_index(row)} for row in found]
    around = zip([None, *rows], rows, [*rows[1:], None], strict=False)
    is_row = {"example_id": example_id} | ({"index": index} if asked.by == "rollout" else {})
    return next(([before, after] for before, row, after in around if is_row.items() <= row.items()), [None, None])


def order_of(asked: Chosen) -> Order:
    return Order.of(asked.sort or "example", SORTS, of_metric="-measure")


def _first_index(row: Mapping[str, Any]) -> int:
    if "strip" not in row:
        return int(row["rollout_index"])
    return int(next((one for one in row["strip"] if not one["correct"]), row["strip"][0])["index"])


def _examples(run_id: str, asked: Chosen, limit: int, skipped: int) -> AskedQuery:
    conditions = [_TEXT] * bool(asked.q) + [_CONDITION.format(condition=asked.where)] * bool(asked.where)
    of_rollouts, order = asked.by == "rollout", order_of(asked)
    sql = (_ROLLOUTS if of_rollouts else _SAMPLES).format(
        most=MOST_SQUARES,
        noted=IS_NOTED,
        rollouts="rollouts" if conditions else "segments.rollouts",
        outcome="outcome" if conditions else _OUTCOME,
        holds=" AND ".join(conditions) or "true",
        kind=KINDS[asked.show][of_rollouts] if asked.show else "true",
        order=order.sql,
        measure="metrics[$metric]" if order.metric is not None else "NULL::DOUBLE",
        other=_OTHER if asked.against else "",
        join=_JOIN if asked.against else "",
        of_examples=_OF_EXAMPLES if asked.against or asked.show == "flaky" or order.name == "spread" else _NO_EXAMPLES,
    )
    values = {"run": run_id, "limit": limit, "offset": skipped}
    if order.metric is not None:
        values["metric"] = order.metric
    return sql, values | {name: value for name in ("q", "against") if (value := getattr(asked, name))}


def _with_texts(warehouse: Warehouse, run_id: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds the beginning of the prompt, the target, the answers and the metrics, and reads them for these rows only."""
    shown = list({row["example_id"] for row in found})
    indexes = list({row["rollout_index"] for row in found if "rollout_index" in row} or range(MOST_SQUARES))
    parameters = {"run": run_id, "examples": shown, "indexes": indexes}
    texts: dict[int, list[dict[str, Any]]] = {}
    for row in records(warehouse, _TEXTS, parameters) if shown else []:
        texts.setdefault(row["example_id"], []).append(row)
    return [{**row, **_told(texts.get(row["example_id"], []), row.get("rollout_index"))} for row in found]


def _told(texts: list[dict[str, Any]], rollout_index: int | None) -> dict[str, Any]:
    """Returns the texts and mean metrics of an example, or of one of its rollouts."""
    own = [one for one in texts if rollout_index in {None, one["rollout_index"]}]
    answers = Counter(one["answer"] for one in own if one["answer"] is not None)
    values: dict[str, list[float]] = {}
    for one in own:
        for name, value in (one["metrics"] or {}).items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return {
        **{name: own[0][name] if own else None for name in ("id", "prompt", "target")},
        "answers": answers.most_common(),
        "ended": ", ".join(sorted({end for one in own if (end := ending(one["stop_condition"], one["turns"]))})),
        "metrics": {name: sum(seen) / len(seen) for name, seen in values.items()},
    }
