"""Reads the rows of ``results.jsonl`` as ``verifiers`` writes it.

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
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nightjar.adapters.results.results import ResultsWriter
from nightjar.adapters.results.values import (
    Row,
    boolean,
    integer,
    mapping,
    measures,
    messages,
    milliseconds,
    number,
    read_rows,
    text,
)
from nightjar.data import example_hash
from nightjar.errors import WarehouseError

_FIELDS = frozenset(
    {
        "answer", "completion", "error", "example_id", "info", "is_completed", "is_truncated", "metrics",
        "prompt", "reward", "rollout_index", "stop_condition", "task", "timing", "token_usage", "tool_defs",
    }
)  # fmt: skip
_SAID_ELSEWHERE = frozenset(
    {
        "advantage", "attempts", "error_chain", "example_hash", "generation_ms", "long_error_chain", "model",
        "scoring_ms", "total_ms",
    }
)  # fmt: skip
_OWN_METRICS = frozenset({"reward", "num_turns"})
_NAMES = re.compile(r"[\w.]+( -> [\w.]+)*")
_FIRST_ERROR = re.compile(r"""[\w.]+\((?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


class Span(NamedTuple):
    """When a rollout began and ended, in Unix time; None where that is not told."""

    start: float | None
    end: float | None


class RowReader:
    """Reads rows and passes them on in Nightjar's form, and gathers what they tell together.

    Attributes:
        state_columns: names, in the order in which they are met.
        start, end: of the first and the last rollout, in Unix time; None where no row tells.
        overwritten: rows whose reward was overwritten.
    """

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self._path = path
        self._averaged = mapping(metadata.get("avg_metrics"))
        self._numbers: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self.state_columns: dict[str, None] = {}
        self.start: float | None = None
        self.end: float | None = None
        self.overwritten = 0

    def write_rows(self, writer: ResultsWriter) -> None:
        """Passes all rows to the writer.

        Raises:
            WarehouseError: a line is damaged or is no rollout.
        """
        for row in read_rows(self._path):
            metrics = self._metrics(row.content)
            fields = dict(self._fields(row, metrics))
            writer.add(self._converted(fields, metrics, row.content, writer), number(fields.get("reward")))

    def _metrics(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        found = content.get("metrics")
        if isinstance(found, Mapping):
            return found
        return {name: content[name] for name in self._averaged if number(content.get(name)) is not None}

    def _fields(self, row: Row, metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yields the fields that no metric of the same name has overwritten; the reward in any case."""
        if not row.content.keys() & {"prompt", "completion", "reward"}:
            raise WarehouseError(f"{row.place} is no rollout: it has neither prompt nor completion nor reward")
        for name, value in row.content.items():
            is_metric = name in metrics and name != "metrics" and _is_same(value, metrics[name])
            if name == "reward" or not is_metric:
                yield name, value

    def _converted(
        self, fields: Mapping[str, Any], metrics: Mapping[str, Any], content: Mapping[str, Any], writer: ResultsWriter
    ) -> dict[str, Any]:
        example = _example(fields)
        computed = example_hash(example)
        example_id = self._example_id(fields.get("example_id"), computed)
        error = _error(fields.get("error"), content)
        self._note(fields, metrics)
        return {
            "example_id": example_id,
            "rollout_index": self._rollout_index(example_id, fields.get("rollout_index")),
            "example_hash": writer.example_hash(example_id, computed),
            "prompt": example["prompt"],
            "completion": messages(fields.get("completion")),
            **{name: example[name] for name in ("answer", "info") if name in example},
            **({"task": fields["task"]} if fields.get("task") else {}),
            "reward": number(fields.get("reward")) if error is None else None,
            "metrics": measures(metrics) if error is None else {},
            "error": error,
            "timing": _timing(fields),
            "is_completed": boolean(fields.get("is_completed")),
            "is_truncated": boolean(fields.get("is_truncated")),
            "stop_condition": text(fields.get("stop_condition")),
            "token_usage": _token_usage(fields.get("token_usage")),
            "attempts": None,
            "model": None,
            **({"tool_defs": fields["tool_defs"]} if fields.get("tool_defs") else {}),
            **self._state(fields),
        }

    def _example_id(self, given: Any, content: str) -> int:
        """Returns the id of an example; those without a number are numbered as they come, equal ones alike."""
        found = integer(given)
        if found is not None:
            return found
        label = content if given is None else repr(given)
        return self._numbers.setdefault(label, len(self._numbers))

    def _rollout_index(self, example_id: int, given: Any) -> int:
        found = integer(given)
        index = self._counts[example_id] if found is None else found
        self._counts[example_id] = index + 1
        return index

    def _note(self, fields: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        has_others = bool(metrics.keys() - _OWN_METRICS)
        if "reward" in metrics and has_others and _is_same(fields.get("reward"), metrics["reward"]):
            self.overwritten += 1
        span = _span(fields.get("timing"))
        if span.start is not None:
            self.start = span.start if self.start is None else min(self.start, span.start)
        if span.end is not None:
            self.end = span.end if self.end is None else max(self.end, span.end)

    def _state(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        columns = {name: value for name, value in fields.items() if name not in _FIELDS | _SAID_ELSEWHERE}
        self.state_columns.update(dict.fromkeys(columns))
        return columns


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN


def _example(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an example is: its prompt, and its answer and info where they are not empty."""
    info = fields.get("info")
    if isinstance(info, str):
        info = _parsed(info)
    known = {"answer": fields.get("answer") or mapping(fields.get("task")).get("answer"), "info": info}
    return {"prompt": messages(fields.get("prompt")), **{name: value for name, value in known.items() if value}}


def _parsed(info: str) -> Any:
    try:
        return orjson.loads(info)
    except orjson.JSONDecodeError:
        return info


def _error(error: Any, content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns an error as Nightjar records it.

    In newer versions it is an object, ``error_chain_str`` with the names of the classes and ``error_chain_repr`` with
    the texts; older ones have a text.
    """
    if isinstance(error, Mapping):
        said = [error.get("error_chain_str"), error.get("error_chain_repr"), error.get("error")]
    else:
        said = [error, content.get("error_chain"), content.get("long_error_chain")]
    texts = [found for found in said if isinstance(found, str) and found]
    if not texts:
        return None
    detail = next((found for found in texts if not _NAMES.fullmatch(found)), texts[0])
    names = next((found for found in texts if _NAMES.fullmatch(found)), _class_name(detail))
    return {
        "error": names.partition(" -> ")[0],
        "message": _message(detail),
        "phase": "generation",
        "error_chain_repr": names,
        "error_chain_str": detail,
        "traceback": None,
    }


def _class_name(detail: str) -> str:
    """Returns the class that a text such as ``ModelError('overloaded')`` or ``ModelError: overloaded`` begins with."""
    found = re.match(r"([A-Za-z_][\w.]*)(\(|: )", detail)
    return found[1] if found else "Error"


def _message(detail: str) -> str:
    """Returns the text of the first error in ``ModelError('overloaded') -> ...``."""
    found = _FIRST_ERROR.match(detail)
    return str(ast.literal_eval(found["quoted"])) if found else detail


def _timing(fields: Mapping[str, Any]) -> dict[str, float | None]:
    """Returns durations: given in milliseconds, beside the rest in the oldest versions, or as spans in seconds."""
    timing = mapping(fields.get("timing")) or fields
    total_ms = number(timing.get("total_ms"))
    return {
        "generation_ms": _span_ms(timing, "generation"),
        "scoring_ms": _span_ms(timing, "scoring"),
        "total_ms": milliseconds(number(timing.get("total"))) if total_ms is None else total_ms,
    }


def _span_ms(timing: Mapping[str, Any], name: str) -> float | None:
    given_ms = number(timing.get(f"{name}_ms"))
    span = mapping(timing.get(name))
    start, end = number(span.get("start")), number(span.get("end"))
    if given_ms is not None or start is None or end is None:
        return given_ms
    return milliseconds(max(0.0, end - start)) if end else 0.0


def _span(timing: Any) -> Span:
    timing = mapping(timing)
    start = number(timing.get("start_time")) or None
    ends = [number(mapping(timing.get(name)).get("end")) for name in ("generation", "scoring")]
    total_ms = number(timing.get("total_ms"))
    if start is not None and total_ms is not None:
        ends.append(start + total_ms / 1000)
    return Span(start, max((end for end in ends if end), default=None))


def _token_usage(usage: Any) -> dict[str, int] | None:
    renamed = {"prefill_tokens": "input_tokens", "decode_tokens": "output_tokens"}
    return {renamed.get(name, name): int(value) for name, value in measures(mapping(usage)).items()} or None
