"""What a tracking program shows of a run: its settings, its metrics, and a table of its rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightjar.core.messages import content_text
from nightjar.exporters.reading import ReadRun, failure_text
from nightjar.warehouse.reading.result import value_text

_SETTINGS = (
    "env_id", "env_version", "env_args", "model", "base_url", "protocol", "sampling_args", "num_examples",
    "rollouts_per_example", "dataset_fingerprint", "rescored_from",
)  # fmt: skip
_COUNTS = ("rollouts", "scored", "failed", "truncated", "coverage", "input_tokens", "output_tokens", "cost")
_COLUMNS = (
    "example_id", "rollout_index", "prompt", "completion", "answer", "reward", "error", "stop_condition",
    "is_truncated", "attempts", "input_tokens", "output_tokens", "total_ms", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """The rollouts of a run. A cell is a number, a truth value, a text or None."""

    columns: list[str]
    rows: list[list[Any]]


def settings_of(run: ReadRun) -> dict[str, Any]:
    """Returns the configuration of a run; of an imported run, what its row has."""
    config = run.row["config"]
    told = {name: run.row[name] for name in _SETTINGS}
    return {**told, **(config if isinstance(config, dict) else {})}


def title_of(run: ReadRun) -> str:
    """Returns the name of a run; of a run without a name, its model and ID."""
    return (run.row["config"] or {}).get("name") or f"{run.row['model']} {run.row['run_id']}"


def metrics_of(run: ReadRun) -> dict[str, float]:
    """Returns the means, counts and sums of a run that are known. A run's own metrics begin with ``metrics/``.

    ``cost`` is in US dollars and ``seconds`` is the duration of the run.
    """
    return {name: float(value) for name, value in _metrics(run.row) if value is not None}


def _metrics(row: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    yield "reward", row["avg_reward"]
    yield "reward_stderr", row["stderr"]
    yield from ((f"metrics/{name}", value) for name, value in sorted((row["avg_metrics"] or {}).items()))
    for name in ("pass_at_k", "pass_all_k"):
        yield from ((f"{name.removesuffix('k')}{k}", value) for k, value in (row[name] or {}).items())
    yield from ((name, row[name]) for name in _COUNTS)
    yield "seconds", None if row["time_ms"] is None else row["time_ms"] / 1000


def table_of(rollouts: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the rollouts as a table, with a column for each metric."""
    names = sorted({name for row in rollouts for name in row["metrics"] or {}})
    return Table(
        [*_COLUMNS, *(f"metrics/{name}" for name in names)],
        [[*_cells(row), *((row["metrics"] or {}).get(name) for name in names)] for row in rollouts],
    )


def _cells(row: Mapping[str, Any]) -> Iterator[Any]:
    told = {
        "prompt": _transcript(row["prompt"]),
        "completion": _transcript(row["completion"]),
        "error": failure_text(row),
        "notes": value_text(row["notes"]) if row["notes"] else None,
    }
    return (told.get(name, row[name]) for name in _COLUMNS)


def _transcript(messages: object) -> str | None:
    r"""Returns messages as one text, with the role of each and its tool calls.

    >>> _transcript([{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}])
    'user: 2 + 2?\n\nassistant: 4'
    """
    if messages is None or isinstance(messages, str):
        return messages
    return "\n\n".join(map(_line, messages)) if isinstance(messages, list) else value_text(messages)


def _line(message: object) -> str:
    if not isinstance(message, Mapping):
        return value_text(message)
    said = _said(message.get("content"))
    calls = [f"{call.get('name')}({call.get('arguments') or ''})" for call in message.get("tool_calls") or ()]
    return f"{message.get('role')}: " + "\n".join(filter(None, [message.get("reasoning_content"), said, *calls]))


def _said(content: object) -> str:
    if isinstance(content, list):
        return content_text([part for part in content if isinstance(part, Mapping)])
    return value_text(content)


def as_json(value: Any) -> str:
    return json.dumps(value, default=value_text)
