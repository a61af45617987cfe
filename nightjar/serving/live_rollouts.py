"""Rollouts of a run that is on disk alone: read where its results have them, as the table ``rollouts`` would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from nightjar.serving.live_run import LiveRun

PASS_THRESHOLD = 0.5
"""Where a run does not say its own."""


def read_rollout(run: LiveRun, example_id: int, rollout_index: int) -> dict[str, Any] | None:
    """Returns a rollout with the columns of ``rollouts`` that pages show; None where results do not have it."""
    place = run.places.get((example_id, rollout_index))
    if place is None:
        return None
    try:
        with run.directory.results_path.open("rb") as file:
            file.seek(place)
            row = orjson.loads(file.readline())
    except (OSError, orjson.JSONDecodeError):  # they were put in order just now
        return None
    is_it = (row["example_id"], row["rollout_index"]) == (example_id, rollout_index)
    return _columns(row, run, run.metadata.get("state_columns") or ()) if is_it else None


def examples(run: LiveRun, show: str = "") -> list[dict[str, Any]]:
    """Returns the examples that have a rollout yet, each with its ``strip`` and ``mean``.

    Args:
        run: the run.
        show: ``wrong``, ``right`` or ``failed`` for those with such a rollout.
    """
    strips: dict[int, list[dict[str, Any]]] = {}
    for example_id, index in sorted(run.places):
        strips.setdefault(example_id, []).append(_square(run, example_id, index))
    return [
        {"example_id": example_id, "strip": strip, "mean": _mean(strip)}
        for example_id, strip in strips.items()
        if not show or any(_kind(one) == show for one in strip)
    ]


def _square(run: LiveRun, example_id: int, index: int) -> dict[str, Any]:
    reward, error = run.rewards.get((example_id, index)), run.failures.get((example_id, index))
    return {"index": index, "reward": reward, "correct": _is_correct(run, reward), "error": error, "noted": False}


def _is_correct(run: LiveRun, reward: float | None) -> bool | None:
    threshold = run.metadata.get("pass_threshold")
    return None if reward is None else reward >= (PASS_THRESHOLD if threshold is None else threshold)


def _kind(square: dict[str, Any]) -> str:
    return "failed" if square["error"] else "right" if square["correct"] else "wrong"


def _mean(strip: list[dict[str, Any]]) -> float | None:
    rewards = [one["reward"] for one in strip if one["reward"] is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _columns(row: dict[str, Any], run: LiveRun, state_columns: Sequence[str]) -> dict[str, Any]:
    error, usage = row.get("error") or {}, row.get("token_usage") or {}
    names = (
        "example_id", "rollout_index", "prompt", "completion", "answer", "info", "task", "tool_defs", "reward",
        "metrics", "is_truncated", "stop_condition", "model", "attempts",
    )  # fmt: skip
    return {
        "run_id": run.run_id,
        **{name: row.get(name) for name in names},
        "correct": _is_correct(run, row.get("reward")),
        "error": error.get("error"),
        "error_chain": error.get("error_chain_repr"),
        "error_phase": error.get("phase"),
        "error_message": error.get("message"),
        "error_traceback": error.get("traceback"),
        "total_ms": (row.get("timing") or {}).get("total_ms"),
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "trajectory": None,
        "state": {name: row[name] for name in state_columns if name in row},
    }
