"""Reads results of ``verifiers``: ``results.jsonl`` and ``metadata.json`` of a folder.

A row of version 0.1.14::

    {"example_id": 0, "prompt": [...], "completion": [...], "answer": "4", "reward": 1.0, "error": null,
     "timing": {"start_time": 1767225600.5, "generation": {"start": 1767225600.5, "end": 1767225602.0}, ...},
     "is_completed": true, "is_truncated": false, "stop_condition": "max_turns_reached",
     "metrics": {"correct": 1.0, "num_turns": 1.0}, "tool_defs": [],
     "token_usage": {"input_tokens": 11.0, "output_tokens": 7.0}, "correct": 1.0, "num_turns": 1.0}

- Rows have no ``rollout_index``: the rollouts of an example are numbered in order of rows.
- Without ``metrics``, a row's metrics are its fields with an average in the metadata. Other unknown fields are state
  columns.
- A row with an error has a reward in verifiers, mostly 0. In Nightjar, it is a failed rollout without a reward.
- A reward function named ``reward`` has overwritten the row's reward. The original cannot be recovered, because the
  weight is not saved; the value stays, with a warning.
- Seconds (``timing`` from 0.1.12 on, ``time``) become milliseconds.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nightjar.core.syntax import read_literal
from nightjar.engine.runs import RunMetadata
from nightjar.environments.data import example_hash
from nightjar.errors import WarehouseError
from nightjar.importers.discovery import FoundResults
from nightjar.importers.reading import (
    Lenient,
    Line,
    Object,
    at,
    check_reward,
    is_measure,
    moment,
    public_url,
    read_object,
    readable_lines,
    told_unreadable,
    without_secrets,
)
from nightjar.importers.rollouts import ResultsWriter, Rollout, digest, error_row

_AGGREGATES = (
    "num_examples", "avg_reward", "avg_metrics", "avg_error", "pass_at_k", "pass_all_k", "pass_threshold", "usage",
)  # fmt: skip
_TOLD_ELSEWHERE = frozenset(
    {"error_chain", "example_hash", "generation_ms", "long_error_chain", "model", "scoring_ms", "total_ms"}
)
_LARGEST_ID = (1 << 63) - 1
_OWN_METRICS = frozenset({"reward", "num_turns"})
_NAMES = re.compile(r"[\w.]+( -> [\w.]+)*")
_CLASS = re.compile(r"([A-Za-z_][\w.]*)(\(|: )")
_FIRST_ERROR = re.compile(r"""[\w.]+\((?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")

_log = logging.getLogger(__name__)


class _Metadata(Lenient):
    env_id: str = ""
    env_args: Object
    model: str = ""
    base_url: str = ""
    num_examples: int = 0
    rollouts_per_example: int = 0
    sampling_args: Object
    date: str | None = None
    time: Any = None  # seconds, or with a date the time of day
    time_ms: float | None = None
    avg_reward: float | None = None
    avg_metrics: Object
    pass_threshold: float = 0.5
    version_info: Object


class _Timing(Lenient):
    """Durations in milliseconds; from version 0.1.12 on in seconds."""

    start_time: float = 0.0
    generation: float | None = at("generation", "duration")
    scoring: float | None = at("scoring", "duration")
    total: float | None = None
    generation_ms: float | None = None
    scoring_ms: float | None = None
    total_ms: float | None = None

    def durations(self) -> dict[str, float | None]:
        return {
            "generation_ms": _milliseconds(self.generation, self.generation_ms),
            "scoring_ms": _milliseconds(self.scoring, self.scoring_ms),
            "total_ms": _milliseconds(self.total, self.total_ms),
        }


def read(found: FoundResults, results: ResultsWriter) -> RunMetadata:
    """Writes the rollouts of a run and returns its metadata.

    The run id is a digest of the settings that ``verifiers`` compares on a resume, and of the start of the first
    rollout, which a resume keeps. If rows have no times, all rows are used instead of the start. Folders may be
    renamed, so their names do not matter.
    """
    content = read_object(found.path / "metadata.json")
    metadata = _Metadata.model_validate(content)
    rows = _Rows(metadata.avg_metrics)
    unreadable: list[str] = []
    results.add_readable(readable_lines(found.path / "results.jsonl", unreadable), rows.rollout, unreadable)
    results.require_some(found.path, unreadable)
    results.finish()
    if rows.overwritten:
        _log.warning(
            "%s: a reward function named 'reward' has overwritten the reward of %d rows; they keep its score.",
            found.path, rows.overwritten,
        )  # fmt: skip
    results.compare_average(found.path, metadata.avg_reward)
    begun = rows.start or results.content_hash()
    identity = [metadata.env_id, metadata.model, content.get("rollouts_per_example"), begun]
    took_ms = _milliseconds(metadata.time if is_measure(metadata.time) else None, metadata.time_ms)
    return RunMetadata(
        run_id=f"verifiers-{digest(*identity)}",
        env_id=metadata.env_id,
        env_args=without_secrets(metadata.env_args),
        env_version=metadata.version_info.get("env_version"),
        model=metadata.model or None,
        base_url=public_url(metadata.base_url) or None,
        num_examples=metadata.num_examples,
        rollouts_per_example=metadata.rollouts_per_example,
        sampling_args=without_secrets(metadata.sampling_args),
        pass_threshold=metadata.pass_threshold,
        version_info=without_secrets(metadata.version_info),
        started_at=moment(rows.start or f"{metadata.date}T{metadata.time}"),
        finished_at=moment(rows.end or None),
        time_ms=None if took_ms is None else round(took_ms),
        original={
            "program": "verifiers",
            **{name: content[name] for name in _AGGREGATES if name in content},
            **told_unreadable(unreadable),
        },
    )


class _Rows:
    """Converts rows, and collects Unix times (0 if unknown) and the number of rows whose reward was overwritten."""

    def __init__(self, averaged: Mapping[str, Any]) -> None:
        self._averaged = averaged
        self._numbers: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self.start = self.end = 0.0
        self.overwritten = 0

    def rollout(self, line: Line) -> Rollout:
        content = line.content
        if not content.keys() & {"prompt", "completion", "reward"}:
            raise WarehouseError(f"{line.place} is not a rollout: it has no prompt, completion or reward")
        if not _is_id(content.get("example_id")):
            raise WarehouseError(f"{line.place} is not a rollout: its example_id is no integer from 0 on")
        check_reward(line)
        metrics = self._metrics(content)
        fields = {n: v for n, v in content.items() if n == "reward" or n not in metrics or not _is_same(v, metrics[n])}
        timing = _Timing.model_validate(fields["timing"] if isinstance(fields.get("timing"), dict) else fields)
        durations = timing.durations()
        if timing.start_time:
            self.start = min(self.start or timing.start_time, timing.start_time)
            self.end = max(self.end, timing.start_time + (durations["total_ms"] or 0.0) / 1000)
        self.overwritten += _is_overwritten(fields.get("reward"), metrics)
        example_id = self._example_id(fields)
        self._counts[example_id] += 1
        return Rollout.model_validate(
            {
                **{name: value for name, value in fields.items() if name not in _TOLD_ELSEWHERE},
                "example_id": example_id,
                "rollout_index": self._counts[example_id] - 1,
                "metrics": metrics,
                "error": _error(fields),
                "timing": durations,
                "token_usage": fields.get("token_usage") or None,
            }
        )

    def _metrics(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        found = content.get("metrics")
        if isinstance(found, Mapping):
            return found
        return {name: content[name] for name in self._averaged if is_measure(content.get(name))}

    def _example_id(self, fields: Mapping[str, Any]) -> int:
        """Returns the id of an example. The oldest versions have no ids, so different examples are numbered."""
        if fields.get("example_id") is not None:
            return int(fields["example_id"])
        return self._numbers.setdefault(example_hash({"prompt": None, **fields}), len(self._numbers))


def _is_id(value: Any) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value <= _LARGEST_ID)


def _milliseconds(seconds: float | None, given_ms: float | None) -> float | None:
    return given_ms if seconds is None else round(seconds * 1000, 3)


def _is_overwritten(reward: Any, metrics: Mapping[str, Any]) -> bool:
    return bool(metrics.keys() - _OWN_METRICS) and "reward" in metrics and _is_same(reward, metrics["reward"])


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other or one != one)  # noqa: PLR0124 - NaN


def _error(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Converts an error: an object of names and texts or, in old versions, a text."""
    error = fields.get("error")
    candidates = [error, fields.get("error_chain"), fields.get("long_error_chain")]
    if isinstance(error, dict):
        candidates = [error.get(name) for name in ("error_chain_str", "error_chain_repr", "error")]
    texts = [text for text in candidates if isinstance(text, str) and text]
    if not texts:
        return None
    detail = next((text for text in texts if not _NAMES.fullmatch(text)), texts[0])
    begins = _CLASS.match(detail)
    names = next((text for text in texts if _NAMES.fullmatch(text)), begins[1] if begins else "Error")
    first = _FIRST_ERROR.match(detail)
    return error_row(names, str(read_literal(first["quoted"])) if first else detail, detail)
