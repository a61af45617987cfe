"""What each of two runs came to by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf
from typing import Any

from nightjar.comparison.measuring import mean_interval
from nightjar.comparison.records import Side
from nightjar.errors import ConfigError
from nightjar.stats.estimates import Estimate
from nightjar.stats.intervals import Interval, wilson
from nightjar.warehouse import Warehouse

_SIDES = """
WITH results AS (
    FROM example_results([$a, $b], metric := $metric)
),
means AS (
    SELECT run_id, sum(value * scored) / sum(scored) AS mean
    FROM results
    GROUP BY run_id
),
examples AS (
    SELECT
        run_id,
        any_value(mean) AS mean,
        count(*) AS examples,
        count(value) AS scored_examples,
        sqrt(sum((scored * (value - mean)) ** 2) * count(value) / nullif(count(value) - 1, 0)) / sum(scored) AS stderr,
        sum(value) AS total,
        coalesce(bool_and(scored = 1 AND value IN (0, 1)) FILTER (scored > 0), false) AS is_binary
    FROM results JOIN means USING (run_id)
    GROUP BY run_id
)
SELECT
    runs.run_id, runs.env_id, coalesce(runs.config ->> 'name', runs.metadata ->> 'name', runs.env_id) AS name,
    runs.model, runs.status, runs.started_at::VARCHAR AS started_at, runs.rollouts, runs.scored, runs.failed,
    runs.coverage, runs.time_ms, runs.env_version, runs.served_models,
    coalesce(cost.input_tokens, runs.input_tokens) AS input_tokens,
    coalesce(cost.output_tokens, runs.output_tokens) AS output_tokens, coalesce(cost.cost, runs.cost) AS cost,
    coalesce(examples, 0) AS examples, coalesce(scored_examples, 0) AS scored_examples, mean, examples.stderr, total,
    is_binary
FROM runs LEFT JOIN cost USING (run_id) LEFT JOIN examples USING (run_id)
WHERE runs.run_id IN ($a, $b)
"""


def told_of_sides(warehouse: Warehouse, a: str, b: str, metric: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns run to what the warehouse has of it.

    Raises:
        ConfigError: a run is not there.
    """
    found = warehouse.query(_SIDES, {"a": a, "b": b, "metric": metric})
    told = {record["run_id"]: record for record in found.records()}
    for run_id in (a, b):
        if run_id not in told:
            raise ConfigError(f"There is no run {run_id!r} in {warehouse.location}. See: nightjar eval list")
    return told


def side_of(told: Mapping[str, Any], alpha: float) -> Side:
    """Returns a run with the interval of its mean."""
    count = told["scored_examples"]
    if told["is_binary"]:
        interval = wilson(round(told["total"]), count, alpha)
    else:
        mean = told["mean"]
        interval = mean_interval(Estimate(mean, told["stderr"]), count, alpha, span=1.0)
        if told["stderr"] == 0:
            is_share = 0 <= mean <= 1
            interval = Interval(max(interval.low, 0.0), min(interval.high, 1.0)) if is_share else Interval(-inf, inf)
    return Side(interval=interval, **{field.name: told[field.name] for field in fields(Side) if field.name in told})
