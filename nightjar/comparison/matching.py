"""Which evaluation of a baseline is which of a candidate, where there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightjar.errors import ConfigError
from nightjar.warehouse import Warehouse

_EVALUATIONS = """
SELECT run_id, coalesce(env_id, '') AS env_id, model, coalesce(config ->> 'name', metadata ->> 'name', env_id) AS name
FROM runs WHERE list_contains($run_ids, run_id)
ORDER BY env_id, name, model, run_id
"""
_KEYS = (("env_id",), ("env_id", "name"), ("env_id", "model"), ("env_id", "name", "model"))
"""What two runs have in common that are of one evaluation: the first that tells all of an environment apart."""


@dataclass(frozen=True)
class Matched:
    """The runs of two sides.

    Attributes:
        pairs: run of the baseline and of the candidate, of each evaluation that both have.
        only_a, only_b: evaluations of one side alone, as somebody would call them.
    """

    pairs: list[tuple[str, str]]
    only_a: list[str]
    only_b: list[str]


def match_evaluations(warehouse: Warehouse, a: Sequence[str], b: Sequence[str]) -> Matched:
    """Returns which run of one side is which of another; with one run on either side, these.

    Raises:
        ConfigError: a side has an evaluation twice.
    """
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
    raise ConfigError(f"Several runs of one evaluation: {runs}. Name one of them")


def _called(row: Mapping[str, Any]) -> str:
    return f"{row['name']} of {row['model']} (run {row['run_id']})"
