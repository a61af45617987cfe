"""The rows of lists of samples: which examples or rollouts of a run match the filters, and their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Annotated, Any

from pydantic import BaseModel

from nightjar.errors import WarehouseError
from nightjar.reports.rollouts import TEXTS, TURNS, ending
from nightjar.view.notes import IS_NOTED
from nightjar.view.orders import Order, an_order
from nightjar.view.pages import answers, one_of, records, user_query
from nightjar.view.rollout_filters import Filtered
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import AskedQuery

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
_OTHER = """other AS (
    SELECT hash_a AS example_hash, correct_b >= 0.5 AS is_right FROM paired([$run], [$against])
),"""
_JOIN = "JOIN other ON grouped.example_hash = other.example_hash AND grouped.is_right <> other.is_right"
_SAMPLES = """
WITH {other} asked AS (
    SELECT
        example_id, example_hash, rollout_index, reward, correct, error, is_truncated, outcome,
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
    SELECT $run AS run_id, grouped.* EXCLUDE (example_hash, is_right), count(*) OVER () AS found
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
        example_id, example_hash, rollout_index, reward, correct, error, is_truncated, outcome,
        output_tokens, total_ms, attempts, {noted} AS noted, {holds} AS holds, {measure} AS measure,
        reward AS mean, {of_examples}
    FROM {rollouts} AS rollouts WHERE run_id = $run
    WINDOW same AS (PARTITION BY example_id)
), grouped AS (FROM asked WHERE holds AND ({kind}))
SELECT $run AS run_id, grouped.* EXCLUDE (example_hash, holds, is_flaky, is_right), count(*) OVER () AS found
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
    run_id, example_id, rollout_index, metrics, stop_condition, {TURNS} AS turns, state ->> 'sample_id' AS id, {TEXTS}
FROM rollouts
WHERE list_contains($runs, run_id) AND list_contains($examples, example_id) AND list_contains($indexes, rollout_index)
    {{pairs}}
ORDER BY run_id, example_id, rollout_index
"""  # noqa: S608 - built from constants
_PAIRS = "AND (run_id, example_id) IN (SELECT (unnest($runs), unnest($examples)))"
"""Of several runs, only these examples; of one run, the condition would only take time."""


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


def filtered_answers(
    warehouse: Warehouse, condition: str | None, filtered: AskedQuery, *others: AskedQuery
) -> tuple[str | None, list[list[dict[str, Any]]]]:
    """Returns the rows of several queries, the first of which has a user's condition, and what is wrong with it."""
    try:
        with user_query() if condition else nullcontext():
            return None, answers(warehouse, filtered, *others, timeout_seconds=TIMEOUT_SECONDS)
    except WarehouseError as error:
        if not condition:
            raise
        return str(error), [[], *answers(warehouse, *others)]


def neighbours(
    warehouse: Warehouse, run_id: str, asked: Chosen, example_id: int, index: int
) -> list[dict[str, int] | None]:
    """Returns the rollouts to open before and after a rollout, among the first 10,000 rows that match the filters.

    In a list of examples, these are rollouts of other examples: the first that is not right, if there is one.
    """
    query = samples_query(run_id, asked, MOST_NEIGHBOURS, 0)
    _, [found] = filtered_answers(warehouse, asked.where, query)  # the page of samples shows what is wrong
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


def samples_query(run_id: str, asked: Chosen, limit: int, skipped: int) -> AskedQuery:
    of_rollouts, order, filtered = asked.by == "rollout", order_of(asked), Filtered.by(asked.q, asked.where)
    sql = (_ROLLOUTS if of_rollouts else _SAMPLES).format(
        most=MOST_SQUARES,
        noted=IS_NOTED,
        rollouts=filtered.relation,
        holds=filtered.holds,
        kind=KINDS[asked.show][of_rollouts] if asked.show else "true",
        order=order.sql,
        measure=measure_of(order),
        other=_OTHER if asked.against else "",
        join=_JOIN if asked.against else "",
        of_examples=_OF_EXAMPLES if asked.against or asked.show == "flaky" or order.name == "spread" else _NO_EXAMPLES,
    )
    values = {"q": asked.q, "against": asked.against, "metric": order.metric}
    return sql, {"run": run_id, "limit": limit, "offset": skipped} | {name: one for name, one in values.items() if one}


def measure_of(order: Order) -> str:
    """Returns the SQL of the metric ``$metric`` that gives an order, if any does."""
    return "NULL::DOUBLE" if order.metric is None else "metrics[$metric]"


def with_texts(warehouse: Warehouse, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds the beginning of the prompt, the target, the answers and the metrics, and reads them for these rows only."""
    shown = list({(row["run_id"], row["example_id"]) for row in found})
    indexes = list({row["rollout_index"] for row in found if "rollout_index" in row} or range(MOST_SQUARES))
    parameters = {"runs": [run for run, _ in shown], "examples": [one for _, one in shown], "indexes": indexes}
    sql = _TEXTS.format(pairs=_PAIRS if len(set(parameters["runs"])) > 1 else "")
    texts: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in records(warehouse, sql, parameters) if shown else []:
        texts.setdefault((row["run_id"], row["example_id"]), []).append(row)
    return [
        {**row, **_told(texts.get((row["run_id"], row["example_id"]), []), row.get("rollout_index"))} for row in found
    ]


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
