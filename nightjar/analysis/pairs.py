"""Matches evaluations of runs, and compares a run with several others (``compare_run``).

The SQL macros ``paired_sides`` and ``paired`` in the warehouse's ``views/pairs.sql`` alone define which examples match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightjar.errors import ConfigError
from nightjar.statistics.estimates import clustered_mean
from nightjar.statistics.exchange import chance_of_so_low
from nightjar.warehouse import Warehouse

_REWARDS = """
SELECT value_b, values_a
FROM paired_sides([$before], [[$after]])
WHERE difference IS NOT NULL
ORDER BY example_hash
"""
_UNPAIRED = """
SELECT count(*) FROM (
    SELECT example_hash
    FROM example_results([$before, $after])
    WHERE scored > 0
    GROUP BY example_hash
    HAVING count(*) = 1
)
"""
_SETTINGS = """
SELECT
    run_id, model, base_url AS endpoint,
    env_args AS "environment's arguments", extra_env_kwargs AS "environment's settings",
    sampling_args AS sampling, dataset_fingerprint AS dataset, rollouts_per_example AS "rollouts per example",
    env_hash AS "environment's code", scoring_hash AS scoring
FROM runs WHERE list_contains($run_ids, run_id)
"""
_EVALUATIONS = """
SELECT run_id, coalesce(env_id, '') AS env_id, model, coalesce(config ->> 'name', metadata ->> 'name', env_id) AS name
FROM runs WHERE list_contains($run_ids, run_id)
ORDER BY env_id, name, model, run_id
"""
_KEYS = (("env_id",), ("env_id", "name"), ("env_id", "model"), ("env_id", "name", "model"))
"""Properties that runs of one evaluation share. The first key that is unique in both sides is used."""


@dataclass(frozen=True)
class Compared:
    """A run compared with others over the common scored examples. Rollouts of an example are averaged.

    ``difference`` is the run's mean minus the others' mean, or None without pairs. The p-values are one-sided, from the
    exchange test.
    """

    pairs: int
    difference: float | None
    stderr: float | None
    p_worse: float
    p_better: float


def compare_run(warehouse: Warehouse, run_id: str, others: Sequence[str]) -> Compared:
    rows = warehouse.query(_REWARDS, {"before": [one for one in others if one != run_id], "after": run_id}).rows
    groups = [[after, *before] for after, before in rows]
    estimate = clustered_mean([[after - sum(before) / len(before)] for after, *before in groups])
    turned_round = [[-value for value in group] for group in groups]
    p_worse, p_better = chance_of_so_low(groups), chance_of_so_low(turned_round)
    return Compared(len(groups), estimate.mean, estimate.stderr, p_worse, p_better)


def unpaired(warehouse: Warehouse, before: str, after: str) -> int:
    """Returns the number of examples that only one of two runs has scored."""
    [(count,)] = warehouse.query(_UNPAIRED, {"before": before, "after": after}).rows
    return int(count)


def settings_of(warehouse: Warehouse, run_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    found = warehouse.query(_SETTINGS, {"run_ids": list(run_ids)})
    return {row[0]: dict(zip(found.columns[1:], row[1:], strict=True)) for row in found.rows}


@dataclass(frozen=True)
class Matched:
    """The runs of two sides. ``only_a`` and ``only_b`` are names of evaluations that only one side has."""

    pairs: list[tuple[str, str]]
    only_a: list[str]
    only_b: list[str]


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (value, after[name]) for name, value in before.items() if value != after[name]}


def match_evaluations(warehouse: Warehouse, a: Sequence[str], b: Sequence[str]) -> Matched:
    """Matches the runs of two sides by evaluation. If each side is a single run, the two runs always match."""
    if len(a) == len(b) == 1:
        return Matched([(a[0], b[0])], [], [])
    rows = warehouse.query(_EVALUATIONS, {"run_ids": [*a, *b]}).records()
    matched = Matched([], [], [])
    for env_id in dict.fromkeys(row["env_id"] for row in rows):
        sides = [[row for row in rows if row["env_id"] == env_id and row["run_id"] in side] for side in (a, b)]
        before, after = _told_apart(*sides)
        matched.pairs.extend((before[key]["run_id"], after[key]["run_id"]) for key in before if key in after)
        matched.only_a.extend(_called(row) for key, row in before.items() if key not in after)
        matched.only_b.extend(_called(row) for key, row in after.items() if key not in before)
    return matched


def _told_apart(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[dict[Any, Mapping[str, Any]], dict[Any, Mapping[str, Any]]]:
    for names in _KEYS:
        a, b = ({tuple(row[name] for name in names): row for row in side} for side in (before, after))
        if len(a) == len(before) and len(b) == len(after):
            return a, b
    runs = ", ".join(_called(row) for row in max(before, after, key=len))
    raise ConfigError(f"Several runs of one evaluation: {runs}. Name one of these runs")


def _called(row: Mapping[str, Any]) -> str:
    return f"{row['name']} of {row['model']} (run {row['run_id']})"
