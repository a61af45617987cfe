"""Reads the rows of NeMo Evaluator's ``results.jsonl``.

One row, and what becomes of it::

    {"problem_idx": 7, "repeat": 0, "reward": 1.0, "scorer_rewards": {"scorer:exact_match": 1.0},
     "prompt": "What is 2+2?", "model_response": "4", "extracted_answer": "4", "expected_answer": "4",
     "scoring_details": {"method": "numeric", "correct": true}, "metadata": {"category": "sums"},
     "tokens": 18, "latency_ms": 210.5}

- ``problem_idx`` and ``repeat`` are ``example_id`` and ``rollout_index``; prompt and response become messages,
  ``metadata`` the ``info``.
- Scorers' rewards, and what is a number or a truth value in ``scoring_details``, are metrics. The rest of the details,
  ``extracted_answer``, ``tokens``, ``trajectory`` and unknown fields are state columns.
- A rollout that broke (``error_category``: infrastructure, system, endpoint), or that the scorer or the judge could
  not score, has reward 0 there; here it failed, and has no reward. One that the model used up (its turns, tokens, time
  or context, and ``graceful``) keeps its 0, and has the category as its stop condition.
- ``trajectories.jsonl``, where it goes with the rows, adds tokens in and out, the served model and times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nightjar.adapters.results.results import ResultsWriter
from nightjar.adapters.results.values import Row, integer, mapping, measures, messages, number, read_rows, text
from nightjar.data import example_hash
from nightjar.errors import WarehouseError
from nightjar.rollout.usage import usage_counts

_FIELDS = frozenset(
    {
        "expected_answer", "latency_ms", "metadata", "model_response", "problem_idx", "prompt", "repeat", "reward",
        "scorer_rewards", "scoring_details",
    }
)  # fmt: skip
_TAKEN = frozenset(
    {
        "advantage", "answer", "attempts", "completion", "error", "example_hash", "example_id", "info", "is_completed",
        "is_truncated", "metrics", "model", "rollout_index", "stop_condition", "task", "timing", "token_usage",
        "tool_defs",
    }
)  # fmt: skip
"""Names that mean something else in Nightjar's rows."""
_FAILURES = {
    "infra_error": "InfraError",
    "tool_infra": "InfraError -> ToolError",
    "system": "Error",
    "rate_limit": "ModelError -> RateLimitError",
    "model_timeout": "ModelError -> APITimeoutError",
    "server_error": "ModelError -> InternalServerError",
    "model_error": "ModelError",
}
"""What Nightjar calls the failures that say nothing about the model; any other that is not its own is an ``Error``."""
_USED_UP = frozenset({"turn_budget_exhausted", "context_window_exceeded", "budget_exceeded", "solve_timeout"})
_OWN_FAILURES = _USED_UP | {"graceful"}
_BROKEN_METHODS = frozenset({"solve_failed", "infra_error", "system_error"})
_MARKS = frozenset({"needs_judge", "retries_exhausted", "unscored"})


class RowReader:
    """Reads rows and passes them on in Nightjar's form.

    Attributes:
        state_columns: names, in the order in which they are met.
    """

    def __init__(self) -> None:
        self.state_columns: dict[str, None] = {}

    def write_rows(self, folder: Path, writer: ResultsWriter) -> None:
        """Passes the rows in a folder to the writer.

        Raises:
            WarehouseError: a line is damaged or is no rollout.
        """
        steps = _Steps(folder / "trajectories.jsonl")
        for row in read_rows(folder / "results.jsonl"):
            converted = self._converted(row, steps.of(row.content), writer)
            writer.add(converted, number(row.content.get("reward")))

    def _converted(self, row: Row, step: Mapping[str, Any], writer: ResultsWriter) -> dict[str, Any]:
        content, details = row.content, mapping(row.content.get("scoring_details"))
        example_id, repeat = integer(content.get("problem_idx")), integer(content.get("repeat", 0))
        if example_id is None or repeat is None:
            raise WarehouseError(f"{row.place} is no rollout: problem_idx and repeat must be integers")
        example = _example(content, example_id)
        error, category = _error(details), text(details.get("error_category"))
        said = mapping(step.get("model"))
        return {
            "example_id": example_id,
            "rollout_index": repeat,
            "example_hash": writer.example_hash(example_id, example_hash(example)),
            "prompt": example["prompt"],
            "completion": _completion(content.get("model_response"), is_scored=error is None),
            **({"answer": example["answer"]} if example["answer"] else {}),
            **({"info": content["metadata"]} if content.get("metadata") else {}),
            "reward": number(content.get("reward")) if error is None else None,
            "metrics": _metrics(content, details) if error is None else {},
            "error": error,
            "timing": _timing(content, mapping(step.get("timing"))),
            "is_completed": error is None,
            "is_truncated": category in _USED_UP or said.get("finish_reason") == "length",
            "stop_condition": category if error is None else None,
            "token_usage": _token_usage(content, said),
            "attempts": None,
            "model": text(said.get("model")) if error is None else None,
            **self._state(content, details if error else _without_metrics(details)),
        }

    def _state(self, content: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
        columns = {name: value for name, value in content.items() if name not in _FIELDS | _TAKEN}
        columns |= {"scoring_details": details} if details else {}
        self.state_columns.update(dict.fromkeys(columns))
        return columns


class _Steps:
    """What ``trajectories.jsonl`` tells of the rows, as long as it has them in the same order."""

    def __init__(self, path: Path) -> None:
        self._rows: Iterator[Row] = read_rows(path) if path.is_file() else iter(())

    def of(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the step of the next row; empty where there is none."""
        step = next(self._rows, None)
        if step and all(step.content.get(name) == content.get(name) for name in ("problem_idx", "repeat")):
            return step.content
        self._rows = iter(())
        return {}


def _example(content: Mapping[str, Any], example_id: int) -> dict[str, Any]:
    """Returns what an example is; of old rows, which have no prompt, with its number, which tells it from others."""
    prompt = content.get("prompt")
    info = mapping(content.get("metadata"))
    return {
        "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else messages(prompt),
        "answer": content.get("expected_answer") or "",
        "info": info if prompt else {**info, "problem_idx": example_id},
    }


def _error(details: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what broke the rollout or its scoring; None for one that counts."""
    category, said = text(details.get("error_category")), details.get("error")
    judge_error = mapping(details.get("judge")).get("error") if "needs_judge" in details else None
    is_unknown = category is None and details.get("method") in _BROKEN_METHODS
    if category in _FAILURES or is_unknown or (category and category not in _OWN_FAILURES and said):
        return _error_row(_FAILURES.get(category or "", "Error"), said or category or details["method"])
    if details.get("unscored"):
        return _error_row("ScoringError", details.get("unscored_reason") or "unscored")
    return _error_row("ScoringError", judge_error) if judge_error else None


def _error_row(chain: str, message: Any) -> dict[str, Any]:
    name = chain.partition(" -> ")[0]
    return {
        "error": name,
        "message": str(message),
        "phase": "scoring" if name == "ScoringError" else "generation",
        "error_chain_repr": chain,
        "error_chain_str": f"{chain}: {message}",
        "traceback": None,
    }


def _completion(response: Any, *, is_scored: bool) -> list[dict[str, Any]] | None:
    has_answered = isinstance(response, str) and (response or is_scored)
    return [{"role": "assistant", "content": response}] if has_answered else None


def _metrics(content: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, float]:
    counted = {name: value for name, value in details.items() if name not in _MARKS}
    return measures(mapping(content.get("scorer_rewards"))) | measures(counted)


def _without_metrics(details: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if number(value) is None}


def _timing(content: Mapping[str, Any], timing: Mapping[str, Any]) -> dict[str, float | None]:
    """Returns durations in milliseconds; 0 stands for unknown there."""
    return {
        "generation_ms": number(content.get("latency_ms")) or None,
        "scoring_ms": number(timing.get("verify_ms")) or None,
        "total_ms": number(timing.get("total_ms")) or None,
    }


def _token_usage(content: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, int] | None:
    """Returns tokens in and out; None where only their sum is known, which is the state column ``tokens``."""
    tokens = mapping(said.get("tokens"))
    counts = integer(tokens.get("prompt")) or 0, integer(tokens.get("completion")) or 0
    if not any(counts):
        counts = usage_counts(mapping(content.get("tokens")))
    return dict(zip(("input_tokens", "output_tokens"), counts, strict=True)) if any(counts) else None
