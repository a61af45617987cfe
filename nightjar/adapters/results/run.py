"""``ForeignRun``: what the metadata of another program say about a run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from nightjar.adapters.results.results import Written

_ID_CHARACTERS = 16


@dataclass(frozen=True)
class ForeignRun:
    """A run of another program, its results written already.

    Attributes:
        run_id: derived from what the run is, not from where it lies.
        settings: fields of ``metadata.json`` that are taken over as they are.
        num_examples: how many were asked for; 0 where nothing says so.
        rollouts_per_example: how many were asked for; 0 where nothing says so.
        pass_threshold: the reward from which on a rollout is correct.
        state_columns: columns of the results that Nightjar has no field for.
        original: the other program's own account: its name, ids and aggregates.
        original_reward: the average reward by that account; None where there is none.
        reward_precision: to how much that average is exact.
        written: the results.
    """

    run_id: str
    settings: dict[str, Any]
    num_examples: int
    rollouts_per_example: int
    pass_threshold: float
    state_columns: list[str]
    original: dict[str, Any]
    original_reward: float | None
    reward_precision: float
    written: Written


def digest(*parts: Any) -> str:
    """Returns 16 hex digits that identify JSON-ready values."""
    content = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return hashlib.sha256(content).hexdigest()[:_ID_CHARACTERS]
