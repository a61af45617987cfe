"""What examples ask, and what two runs answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nightjar.comparison.records import Excerpt, Flip
from nightjar.messages import content_text
from nightjar.warehouse import Warehouse

_TEXTS = """
SELECT
    run_id, example_hash, any_value(prompt) AS prompt, any_value(answer) AS answer,
    arg_max(completion, reward) AS highest, arg_min(completion, reward) AS lowest
FROM rollouts
WHERE list_contains([$a, $b], run_id) AND list_contains($hashes, example_hash)
GROUP BY run_id, example_hash
"""
_LONGEST = 4_000


def read_excerpts(
    warehouse: Warehouse, a: str, b: str, broken: Sequence[Flip], fixed: Sequence[Flip]
) -> Mapping[str, Excerpt]:
    """Returns example_hash to its texts in the two runs.

    Args:
        warehouse: has the runs.
        a, b: their ids.
        broken, fixed: the examples: right in the first alone, right in the second alone.
    """
    flips = [*broken, *fixed]
    if not flips:
        return {}
    found = warehouse.query(_TEXTS, {"a": a, "b": b, "hashes": [flip.example_hash for flip in flips]})
    texts = {(record["run_id"], record["example_hash"]): record for record in found.records()}
    return {
        flip.example_hash: _excerpt(
            texts[a, flip.example_hash], texts[b, flip.example_hash], right_a=number < len(broken)
        )
        for number, flip in enumerate(flips)
    }


def _excerpt(before: Mapping[str, Any], after: Mapping[str, Any], *, right_a: bool) -> Excerpt:
    best, worst = ("highest", "lowest") if right_a else ("lowest", "highest")
    return Excerpt(
        prompt=_last_text(after["prompt"]),
        answer=_cut(after["answer"] or ""),
        baseline=_last_text(before[best]),
        candidate=_last_text(after[worst]),
    )


def _last_text(messages: str | None) -> str:
    """Returns the last message of a conversation."""
    said = json.loads(messages) if messages else ""
    if isinstance(said, list):
        said = said[-1] if said else ""
    if isinstance(said, dict):
        said = content_text(said.get("content"))
    return _cut(str(said))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
