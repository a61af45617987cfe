"""Reads results of NeMo Evaluator: a bundle ``eval-*.json`` and ``results.jsonl``, also in shards.

Sampling settings become ``sampling_args``, all other settings ``env_args``, without secrets. The scores of the bundle,
or of all unmerged shards, are kept under ``original``. A row::

    {"problem_idx": 7, "repeat": 0, "reward": 1.0, "scorer_rewards": {"scorer:exact_match": 1.0},
     "prompt": "What is 2+2?", "model_response": "4", "extracted_answer": "4", "expected_answer": "4",
     "scoring_details": {"method": "numeric", "correct": true}, "metadata": {"category": "sums"},
     "tokens": 18, "latency_ms": 210.5}

- ``problem_idx`` and ``repeat`` become ``example_id`` and ``rollout_index``, ``metadata`` becomes ``info``.
- Scorers' rewards, and numbers and bools in ``scoring_details``, are metrics. Other details, ``extracted_answer``,
  ``tokens``, ``trajectory`` and unknown fields are state columns.
- A failed rollout (``error_category``: infrastructure, system, endpoint) or scoring has reward 0 in NeMo Evaluator and
  no reward in Nightjar. A rollout that reached a limit (turns, tokens, time, context, and ``graceful``) keeps the
  reward 0, and the category becomes its stop condition.
- ``trajectories.jsonl`` adds input and output tokens, the served model and times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from nightjar.core.failures import CATEGORY_CHAINS, LIMIT_CATEGORIES
from nightjar.engine.runs import RunMetadata
from nightjar.errors import WarehouseError
from nightjar.importers.discovery import FoundResults, bundles_in
from nightjar.importers.reading import (
    Lenient,
    Line,
    Object,
    at,
    check_reward,
    is_measure,
    lines_with_gaps,
    moment,
    public_url,
    read_object,
    told_unreadable,
    without_secrets,
)
from nightjar.importers.rollouts import ResultsWriter, Rollout, digest, error_row

_SAMPLING = ("temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
_NOT_ARGUMENTS = frozenset(
    {
        "base_url", "benchmark", "max_problems", "model", "model_url", "n_shards", "repeats", "shard", "shard_range",
        "shuffle", *_SAMPLING,
    }
)  # fmt: skip
_IDENTITY = ("run_id", "timestamp", "config_hash")
_ACCOUNT = ("run_id", "config_hash", "timestamp", "n_results", "benchmark")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_ID_CHARACTERS = 8
_THRESHOLD = 0.5

_USED_UP = frozenset(LIMIT_CATEGORIES.values())
_OWN_FAILURES = _USED_UP | {"graceful"}
_BROKEN_METHODS = frozenset({"solve_failed", "infra_error", "system_error"})
_TAKEN = Rollout.model_fields.keys() | {
    "expected_answer", "latency_ms", "metadata", "model_response", "problem_idx", "repeat", "scorer_rewards",
    "scoring_details", "step",
}  # fmt: skip
"""Fields of rows that do not become state columns, because they are read here or Nightjar has a field of that name."""
_MARKS = frozenset({"needs_judge", "retries_exhausted", "unscored"})


class _Bundle(Lenient):
    content: Object
    run_id: str = ""
    timestamp: str | None = None
    sdk_version: str | None = None
    benchmark: str = at("benchmark", "name", default="")
    repeats: int = at("benchmark", "repeats", default=0)
    mean_reward: float | None = at("benchmark", "scores", "mean_reward", "value")
    pass_at_1: float | None = at("benchmark", "scores", "pass@1", "value")
    elapsed_seconds: float = at("benchmark", "scores", "runtime", "elapsed_seconds", default=0.0)
    config: Object
    model: str = at("config", "model", default="")
    base_url: str = at("config", "base_url", default="")
    model_url: str = at("config", "model_url", default="")
    shard_range: tuple[int, int] | None = at("config", "shard_range")
    problems: int = at("config", "shuffle", "ds_effective_size", default=0)

    @property
    def ended_at(self) -> datetime | None:
        return moment(self.timestamp)

    @property
    def started_at(self) -> datetime | None:
        return self.ended_at and self.ended_at - timedelta(seconds=self.elapsed_seconds)


class _Row(Lenient):
    """A row, with its line of ``trajectories.jsonl`` under ``step``."""

    problem_idx: int | None = Field(None, ge=0, lt=1 << 63)
    repeat: int | None = Field(None, ge=0, lt=1 << 32)
    reward: float | None = None
    scorer_rewards: Object
    prompt: Any = None
    model_response: str | None = None
    expected_answer: Any = None
    scoring_details: Object
    metadata: Object
    latency_ms: float | None = None
    served_model: str | None = at("step", "model", "model")
    finish_reason: str | None = at("step", "model", "finish_reason")
    input_tokens: int = at("step", "model", "tokens", "prompt", default=0)
    output_tokens: int = at("step", "model", "tokens", "completion", default=0)
    verify_ms: float | None = at("step", "timing", "verify_ms")
    total_ms: float | None = at("step", "timing", "total_ms")


def read(found: FoundResults, results: ResultsWriter) -> RunMetadata:
    """Writes the rollouts of a run and returns its metadata.

    Several runs may start in the same second, so the run id has a digest. It covers the id, exact time and
    configuration of the bundle, or of all shards, merged or not.
    """
    own = [] if found.shards and not bundles_in(found.path) else [_bundle(found.path)]
    parts = [_bundle(path) for path in found.shards] or own
    folders = [found.path.parent if found.path.is_file() else found.path] if own else found.shards
    unreadable: list[str] = []
    for folder in folders:
        results.add_readable(_lines(folder, unreadable), _rollout, unreadable)
    results.require_some(found.path, unreadable)
    results.finish()
    bundles = own or parts
    bundle = bundles[0]
    if len(bundles) == 1:
        average = bundle.pass_at_1 if bundle.mean_reward is None else bundle.mean_reward
        results.compare_average(found.path, average)
    settings = {k: v for k, v in bundle.config.items() if v is not None and not k.startswith("_")}
    url = public_url(bundle.base_url or bundle.model_url)
    return RunMetadata(
        run_id=_run_id(parts),
        env_id=bundle.benchmark,
        env_args=without_secrets({name: value for name, value in settings.items() if name not in _NOT_ARGUMENTS}),
        env_version=None,
        model=bundle.model or None,
        base_url=url.removesuffix("/").removesuffix("/chat/completions") or None,
        num_examples=_num_examples(bundle, is_whole=bool(found.shards) or "n_shards" in settings),
        rollouts_per_example=bundle.repeats,
        sampling_args=without_secrets({name: settings[name] for name in _SAMPLING if name in settings}),
        pass_threshold=_THRESHOLD,
        version_info={"sdk_version": bundle.sdk_version},
        started_at=min((part.started_at for part in parts if part.started_at), default=None),
        finished_at=max((part.ended_at for part in parts if part.ended_at), default=None),
        time_ms=round(max(part.elapsed_seconds for part in parts) * 1000) or None,
        original={
            "program": "nemo-evaluator",
            "bundles": [{name: part.content.get(name) for name in _ACCOUNT} for part in bundles],
            **told_unreadable(unreadable),
        },
    )


def _bundle(path: Path) -> _Bundle:
    folder = path.parent if path.is_file() else path
    bundles = sorted({*bundles_in(folder), *([path] if path.is_file() else [])})
    if len(bundles) > 1:
        names = ", ".join(bundle.name for bundle in bundles)
        raise WarehouseError(
            f"{str(folder)!r} has {len(bundles)} bundles and only one results.jsonl: {names}. "
            "Its rows belong to the bundle that was written last. Move the other bundles elsewhere."
        )
    content = read_object(bundles[0])
    bundle = _Bundle.model_validate({**content, "content": content})
    if not (bundle.run_id and bundle.benchmark):
        raise WarehouseError(f"{bundles[0]} is not a bundle of NeMo Evaluator: it has no run_id or no benchmark")
    return bundle


def _run_id(parts: Sequence[_Bundle]) -> str:
    identity = [[part.content.get(name) for name in _IDENTITY] for part in parts]
    return f"{_UNSAFE.sub('_', parts[0].run_id).strip('.')}-{digest(identity)[:_ID_CHARACTERS]}"


def _num_examples(bundle: _Bundle, *, is_whole: bool) -> int:
    """Returns the number of problems (for a single shard, only those of the shard); 0 if unknown."""
    if bundle.shard_range and not is_whole:
        first, end = bundle.shard_range
        return max(0, end - first)
    return bundle.problems


def _lines(folder: Path, unreadable: list[str]) -> Iterator[Line]:
    """Yields the readable rows; adds their steps if ``trajectories.jsonl`` has the steps in the order of the rows."""
    path = folder / "trajectories.jsonl"
    steps = lines_with_gaps(path, unreadable) if path.is_file() else iter(())
    for line in lines_with_gaps(folder / "results.jsonl", unreadable):
        step = next(steps, None)
        if not line:
            continue
        if step and all(step.content.get(name) == line.content.get(name) for name in ("problem_idx", "repeat")):
            line.content["step"] = step.content
        yield line


def _rollout(line: Line) -> Rollout:
    row = _Row.model_validate({"repeat": 0, **line.content})
    if row.problem_idx is None or row.repeat is None:
        raise WarehouseError(f"{line.place} is not a rollout: problem_idx and repeat must be integers from 0 on")
    check_reward(line)
    details = row.scoring_details
    category, error = details.get("error_category"), broken(details)
    counts = {"input_tokens": row.input_tokens, "output_tokens": row.output_tokens}
    kept_details = details if error else {name: value for name, value in details.items() if not is_measure(value)}
    has_answered = row.model_response is not None and (row.model_response or error is None)
    columns = {name: value for name, value in line.content.items() if name not in _TAKEN}
    return Rollout.model_validate(
        {
            **columns,
            **({"scoring_details": kept_details} if kept_details else {}),
            "example_id": row.problem_idx,
            "rollout_index": row.repeat,
            "prompt": [{"role": "user", "content": row.prompt}] if isinstance(row.prompt, str) else row.prompt,
            "completion": [{"role": "assistant", "content": row.model_response}] if has_answered else None,
            "answer": row.expected_answer,
            "info": row.metadata if row.prompt else {**row.metadata, "problem_idx": row.problem_idx},
            "reward": row.reward,
            "metrics": row.scorer_rewards | {name: v for name, v in details.items() if name not in _MARKS},
            "error": error,
            "timing": {  # in NeMo Evaluator, 0 means unknown
                "generation_ms": row.latency_ms or None,
                "scoring_ms": row.verify_ms or None,
                "total_ms": row.total_ms or None,
            },
            "is_completed": error is None,
            "is_truncated": category in _USED_UP or row.finish_reason == "length",
            "stop_condition": category if error is None else None,
            "token_usage": counts if any(counts.values()) else None,
            "model": row.served_model,
        }
    )


def broken(details: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the error of a failed rollout or scoring, by its ``scoring_details``; None if the rollout counts."""
    category, message = details.get("error_category"), details.get("error")
    is_unknown = category is None and details.get("method") in _BROKEN_METHODS
    if category in CATEGORY_CHAINS or is_unknown or (category and category not in _OWN_FAILURES and message):
        return error_row(CATEGORY_CHAINS.get(category or "", "Error"), str(message or category or details["method"]))
    if details.get("unscored"):
        return error_row("ScoringError", str(details.get("unscored_reason") or "unscored"))
    judge = details.get("judge") if "needs_judge" in details else None
    return error_row("ScoringError", str(judge["error"])) if isinstance(judge, dict) and judge.get("error") else None
