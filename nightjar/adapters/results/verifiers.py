"""Reads what ``verifiers`` writes: ``results.jsonl`` and ``metadata.json`` of a folder.

One row, of version 0.1.14, and what becomes of it::

    {"example_id": 0, "prompt": [...], "completion": [...], "answer": "4", "reward": 1.0, "error": null,
     "timing": {"start_time": 1767225600.5, "generation": {"start": 1767225600.5, "end": 1767225602.0}, ...},
     "is_completed": true, "is_truncated": false, "stop_condition": "max_turns_reached",
     "metrics": {"correct": 1.0, "num_turns": 1.0}, "tool_defs": [],
     "token_usage": {"input_tokens": 11.0, "output_tokens": 7.0}, "correct": 1.0, "num_turns": 1.0}

- Rows carry no ``rollout_index``: the rollouts of an example are counted as they come.
- Metrics stand beside the rest once more; where ``metrics`` is missing, they are those that the metadata average.
  Any other field is a state column.
- A row with an error has a reward, mostly 0, there; here it failed, and has none.
- A reward function called ``reward`` has overwritten the row's reward. Its weight is not told, so the row's own reward
  cannot be found again; it stays, with a warning.
- Seconds (``timing`` of 0.1.12 and newer, ``time``) become milliseconds. What is missing is null.
"""

from __future__ import annotations

import ast
import logging
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nightjar.adapters.results.discovery import FoundResults
from nightjar.adapters.results.reading import (
    Anything,
    Integer,
    Lenient,
    Line,
    Number,
    Object,
    Text,
    Truth,
    at,
    is_measure,
    measures,
    milliseconds,
    moment,
    read_lines,
    read_object,
    whole,
)
from nightjar.adapters.results.redaction import public_url, without_secrets
from nightjar.adapters.results.rollouts import ResultsWriter, Rollout, digest, error_row, messages, parsed
from nightjar.data import example_hash
from nightjar.errors import WarehouseError
from nightjar.runs import RunMetadata

_AGGREGATES = (
    "num_examples", "avg_reward", "avg_metrics", "avg_error", "pass_at_k", "pass_all_k", "pass_threshold", "usage",
)  # fmt: skip
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
    date: Text
    time: Anything  # seconds; beside a date that of the clock
    time_ms: Number
    avg_reward: Number
    avg_metrics: Object
    pass_threshold: float = 0.5
    version_info: Object


class _Timing(Lenient):
    """Moments in Unix time; durations in milliseconds, or ``total`` in seconds."""

    start_time: float = 0.0
    generation_start: Number = at("generation", "start")
    generation_end: Number = at("generation", "end")
    scoring_start: Number = at("scoring", "start")
    scoring_end: Number = at("scoring", "end")
    total: Number
    generation_ms: Number
    scoring_ms: Number
    total_ms: Number

    def durations(self) -> dict[str, float | None]:
        return {
            "generation_ms": _span_ms(self.generation_start, self.generation_end, self.generation_ms),
            "scoring_ms": _span_ms(self.scoring_start, self.scoring_end, self.scoring_ms),
            "total_ms": _span_ms(0.0, self.total, self.total_ms),
        }

    def end(self) -> float:
        """Unix time; 0 where that is not told."""
        ends = self.generation_end or 0.0, self.scoring_end or 0.0
        return max(*ends, self.start_time + (self.total_ms or 0) / 1000) if self.start_time else 0.0


class _Row(Lenient):
    example_id: Integer
    prompt: Anything
    completion: Anything
    answer: Anything
    info: Anything
    task: Anything
    reward: Number
    metrics: Anything
    error: Anything
    error_chain: Anything
    long_error_chain: Anything
    timing: Object
    generation_ms: Anything  # in the oldest versions, as the next two
    scoring_ms: Anything
    total_ms: Anything
    is_completed: Truth
    is_truncated: Truth
    stop_condition: Text
    token_usage: Object
    tool_defs: Anything


def read(found: FoundResults, results: ResultsWriter) -> RunMetadata:
    """Writes the rollouts of a run, and returns what its metadata say.

    The run is identified by what ``verifiers`` itself compares on a resume (environment, model, rollouts per example)
    and by the moment its first rollout began, which no other run has and which stays when it is resumed; rows
    without times by all they hold. The name of the folder has no part in it, because folders are renamed.

    Raises:
        WarehouseError: a file is damaged or cannot be read.
    """
    content = read_object(found.path / "metadata.json")
    metadata = _Metadata.model_validate(content)
    rows = _Rows(metadata.avg_metrics)
    for line in read_lines(found.path / "results.jsonl"):
        results.add(rows.rollout(line))
    results.finish()
    if rows.overwritten:
        _log.warning(
            "%s: a reward function named 'reward' has overwritten the reward of %d rows; they keep its score.",
            found.path, rows.overwritten,
        )  # fmt: skip
    results.compare_average(found.path, metadata.avg_reward)
    begun = rows.start or results.content_hash()
    identity = [metadata.env_id, metadata.model, content.get("rollouts_per_example"), begun]
    seconds = metadata.time if is_measure(metadata.time) else None
    return RunMetadata(
        run_id=f"verifiers-{digest(*identity)}",
        env_id=metadata.env_id,
        env_args=without_secrets(metadata.env_args),
        env_version=metadata.version_info.get("env_version"),
        model=metadata.model,
        base_url=public_url(metadata.base_url) or None,
        num_examples=metadata.num_examples,
        rollouts_per_example=metadata.rollouts_per_example,
        sampling_args=without_secrets(metadata.sampling_args),
        pass_threshold=metadata.pass_threshold,
        version_info=without_secrets(metadata.version_info),
        started_at=moment(rows.start or f"{metadata.date}T{metadata.time}"),
        finished_at=moment(rows.end or None),
        time_ms=whole(_span_ms(0.0, seconds, metadata.time_ms)),
        original={"program": "verifiers", **{name: content[name] for name in _AGGREGATES if name in content}},
    )


class _Rows:
    """Takes rows apart, and gathers what they tell together.

    Attributes:
        start, end: of the first and the last rollout, in Unix time; 0 where no row tells.
        overwritten: rows whose reward was overwritten.
    """

    def __init__(self, averaged: Mapping[str, Any]) -> None:
        self._averaged = averaged
        self._numbers: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self.start = self.end = 0.0
        self.overwritten = 0

    def rollout(self, line: Line) -> Rollout:
        """Returns a row as a rollout.

        Raises:
            WarehouseError: it is none.
        """
        content = line.content
        if not content.keys() & {"prompt", "completion", "reward"}:
            raise WarehouseError(f"{line.place} is no rollout: it has neither prompt nor completion nor reward")
        metrics = self._metrics(content)
        fields = {n: v for n, v in content.items() if n == "reward" or n not in metrics or not _is_same(v, metrics[n])}
        row = _Row.model_validate(fields)
        timing = _Timing.model_validate(row.timing or fields)
        self._note(timing, is_overwritten=_is_overwritten(row, metrics))
        example_id = self._example_id(row)
        self._counts[example_id] += 1
        return Rollout(
            example_id=example_id,
            rollout_index=self._counts[example_id] - 1,
            prompt=messages(row.prompt),
            completion=messages(row.completion),
            answer=row.answer,
            info=parsed(row.info),
            task=row.task,
            reward=row.reward,
            metrics=measures(metrics),
            error=_error(row),
            timing=timing.durations(),
            is_completed=row.is_completed,
            is_truncated=row.is_truncated,
            stop_condition=row.stop_condition,
            token_usage={name: int(count) for name, count in measures(row.token_usage).items()} or None,
            tool_defs=row.tool_defs,
            state={name: value for name, value in fields.items() if name not in _Row.model_fields},
        )

    def _metrics(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        found = content.get("metrics")
        if isinstance(found, Mapping):
            return found
        return {name: content[name] for name in self._averaged if is_measure(content.get(name))}

    def _example_id(self, row: _Row) -> int:
        """Returns the id of an example; those of the oldest versions are numbered as they come, equal ones alike."""
        if row.example_id is not None:
            return row.example_id
        content = example_hash({"prompt": row.prompt, "answer": row.answer, "info": row.info})
        return self._numbers.setdefault(content, len(self._numbers))

    def _note(self, timing: _Timing, *, is_overwritten: bool) -> None:
        self.overwritten += is_overwritten
        self.end = max(self.end, timing.end())
        if timing.start_time:
            self.start = min(self.start or timing.start_time, timing.start_time)


def _span_ms(start: float | None, end: float | None, given_ms: float | None) -> float | None:
    if given_ms is not None or start is None or end is None:
        return given_ms
    return milliseconds(max(0.0, end - start))


def _is_overwritten(row: _Row, metrics: Mapping[str, Any]) -> bool:
    return bool(metrics.keys() - _OWN_METRICS) and "reward" in metrics and _is_same(row.reward, metrics["reward"])


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN


def _error(row: _Row) -> dict[str, Any] | None:
    """Returns an error as Nightjar records it.

    In newer versions it is an object, ``error_chain_str`` with the names of the classes and ``error_chain_repr`` with
    the texts; older ones have a text.
    """
    said = [row.error, row.error_chain, row.long_error_chain]
    if isinstance(row.error, dict):
        said = [row.error.get(name) for name in ("error_chain_str", "error_chain_repr", "error")]
    texts = [text for text in said if isinstance(text, str) and text]
    if not texts:
        return None
    detail = next((text for text in texts if not _NAMES.fullmatch(text)), texts[0])
    begins = _CLASS.match(detail)
    names = next((text for text in texts if _NAMES.fullmatch(text)), begins[1] if begins else "Error")
    first = _FIRST_ERROR.match(detail)
    return error_row(names, str(ast.literal_eval(first["quoted"])) if first else detail, detail)
