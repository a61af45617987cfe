"""Reads logs of Inspect: ``.eval`` and ``.json`` files of format version 2, as of ``inspect_ai`` 0.3.285.

A log is a run, a sample is an example, and an epoch is a rollout. A sample, without its events::

    {"id": 7, "epoch": 1, "input": "2+2?", "choices": null, "target": "4", "metadata": {"level": 1},
     "messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4", "source": "generate"}],
     "scores": {"match": {"value": "C", "answer": "4", "explanation": "4"}},
     "model_usage": {"openai/gpt-4.1-mini": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}},
     "total_time": 1.5, "working_time": 1.25, "uuid": "…", "error": null, "limit": null, "attachments": {}}

- ``example_id`` is the position in the log's ``sample_ids``; the id itself is the state column ``sample_id``.
- The reward is the score of the headline metric, or else the first score. All numbers are metrics. Unscored samples
  have neither.
- A sample with an error is a failed rollout. If Inspect scored it all the same (``score_on_error``), it counts in
  Inspect's means, so it is a scored rollout with the stop condition ``error`` and the state column ``sample_error``.
- A limit is the stop condition, and the rollout is truncated.
- Tokens are those of the evaluated model; the tokens of all models are the state column ``model_usage``.
- The scores of the log itself are kept under ``original``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import AliasPath, Field

from nightjar.core.secrecy import hide_keys
from nightjar.engine.runs import RunMetadata
from nightjar.engine.runs.jsonl import encoded
from nightjar.engine.runs.metadata import Status
from nightjar.errors import WarehouseError
from nightjar.importers.discovery import FoundResults
from nightjar.importers.inspect_files import InspectLog, open_log
from nightjar.importers.inspect_messages import prompt_and_completion, with_attachments
from nightjar.importers.inspect_scores import Results, Reward, metrics
from nightjar.importers.reading import (
    MOST_UNREADABLE,
    Count,
    Lenient,
    Line,
    Object,
    at,
    is_measure,
    moment,
    public_url,
    without_secrets,
)
from nightjar.importers.rollouts import ResultsWriter, Rollout, digest, error_row

PROGRAM = "inspect_ai"
VERSION = 1
"""The version of this reader; with a new one, logs that are already published are read again."""

_NEWEST_FORMAT = 2
_ID_CHARACTERS = 8
_THRESHOLD = 1.0
"""Inspect's ``pass_at_k`` counts a value of at least 1 as correct."""
_STATUS: Mapping[str, Status] = {"cancelled": "cancelled", "error": "failed", "started": "crashed"}
"""Statuses of logs without all samples. A log stays ``started`` if its process was killed."""
_STOPS = {
    "context": "prompt_too_long",
    "time": "timeout_reached",
    "token": "max_total_completion_tokens_reached",
    "turn": "turn_limit_reached",
    "working": "timeout_reached",
}
"""Nightjar's names of limits; further limits are ``LIMIT_limit_reached``."""
_CUT = frozenset({"max_tokens", "model_length"})
_STATE = (
    "description", "sandbox", "files", "setup", "store", "model_usage", "role_usage", "model_fallbacks", "started_at",
    "completed_at", "working_time", "uuid", "invalidation", "limit", "turn_count",
)  # fmt: skip
"""Fields of a sample that become state columns of the same name, unless they are empty."""
_UNREAD = frozenset({"attachments", "events", "events_data", "timelines"})
_IDENTITY = ("eval_id", "run_id", "task_id", "eval_set_id", "created")
_LAST_LINE = re.compile(r"^([A-Za-z_][\w.]*)(?:: |\Z)", re.MULTILINE)
_CALL = re.compile(r"([A-Za-z_]\w*)\(")


class _Header(Lenient):
    status: str = "started"
    settings: dict[str, Any] = at("eval", default={})
    plan_generation: dict[str, Any] = at("plan", "config", default={})
    task: str = at("eval", "task", default="")
    task_version: Any = at("eval", "task_version")
    task_args: dict[str, Any] = at("eval", "task_args", default={})
    solver: str | None = at("eval", "solver")
    solver_args: dict[str, Any] = at("eval", "solver_args", default={})
    model: str = at("eval", "model", default="")
    base_url: str = at("eval", "model_base_url", default="")
    model_args: dict[str, Any] = at("eval", "model_args", default={})
    generation: dict[str, Any] = at("eval", "model_generate_config", default={})
    config: dict[str, Any] = at("eval", "config", default={})
    epochs: Count = at("eval", "config", "epochs", default=1)
    sample_ids: list[Any] = at("eval", "dataset", "sample_ids", default=[])
    samples: Count = at("eval", "dataset", "samples", default=0)
    revision: dict[str, Any] = at("eval", "revision", default={})
    packages: dict[str, Any] = at("eval", "packages", default={})
    eval_tags: list[str] = at("eval", "tags", default=[])
    tags: list[str] | None = None
    metadata: Object
    results: Results = Field(default_factory=Results)
    stats: Object
    created: str | None = at("eval", "created")
    started_at: str | None = at("stats", "started_at")
    completed_at: str | None = at("stats", "completed_at")
    error: str | None = at("error", "message")


class _Sample(Lenient):
    epoch: int = Field(1, ge=1, lt=1 << 32)
    target: Any = None
    choices: list[Any] | None = None
    metadata: Object
    scores: Object
    output_model: str | None = at("output", "model")
    stop_reason: str | None = Field(None, validation_alias=AliasPath("output", "choices", 0, "stop_reason"))
    model_usage: Object
    total_time: float | None = None
    error: Object
    error_message: str = at("error", "message", default="")
    traceback: str = at("error", "traceback", default="")
    error_retries: list[dict[str, Any]] | None = None
    limit: str | None = at("limit", "type")


def read(found: FoundResults, results: ResultsWriter) -> RunMetadata:
    """Writes the rollouts of a log and returns its metadata.

    The run id is made from Inspect's id of the evaluation and its scorers. So it stays if scores are edited, or if a
    log is converted or recovered. A log that other scorers have scored is a run of its own, like a retried log.
    """
    with open_log(found.path) as log:
        _check_version(log)
        header = _Header.model_validate(orjson.loads(encoded(log.header)))  # metadata cannot hold NaN or huge integers
        samples = _Samples(header, Reward(header.results))
        results.add_readable(log.samples, samples.rollout, log.unreadable)
    results.finish()
    results.compare_average(found.path, samples.reward.reported)
    started, finished = moment(header.started_at or header.created), moment(header.completed_at)
    return RunMetadata(
        run_id=_run_id(header),
        status=_STATUS.get(header.status, "running"),
        env_id=header.task,
        env_args=without_secrets(header.task_args),
        extra_env_kwargs=without_secrets(_known({"solver": header.solver, "solver_args": header.solver_args})),
        env_version=None if header.task_version is None else str(header.task_version),
        model=header.model or None,
        base_url=public_url(header.base_url) or None,
        num_examples=len(header.sample_ids) or header.samples,
        rollouts_per_example=header.epochs,
        sampling_args=without_secrets(
            _known(header.generation | header.plan_generation | {"model_args": _known(header.model_args)})
        ),
        pass_threshold=_THRESHOLD,
        tags=header.eval_tags if header.tags is None else header.tags,
        version_info=_versions(header),
        started_at=started,
        finished_at=finished,
        time_ms=round((finished - started).total_seconds() * 1000) if started and finished else None,
        error=hide_keys(header.error) if header.error else None,
        original=_original(header, log.unreadable),
    )


def _check_version(log: InspectLog) -> None:
    version = log.header.get("version")
    if isinstance(version, int) and version > _NEWEST_FORMAT:
        raise WarehouseError(
            f"{log.path} has version {version} of the log format of Inspect. This version of Nightjar reads version "
            f"{_NEWEST_FORMAT}: update Nightjar, or write the log with an older version of Inspect"
        )


class _Samples:
    """Converts samples, and numbers them in the order of the log's ``sample_ids``."""

    def __init__(self, header: _Header, reward: Reward) -> None:
        self.reward = reward
        self._model = header.model
        self._numbers = {str(name): place for place, name in enumerate(header.sample_ids)}

    def rollout(self, line: Line) -> Rollout:
        content = {name: value for name, value in line.content.items() if name not in _UNREAD}
        if isinstance(attachments := line.content.get("attachments"), dict) and attachments:
            content = with_attachments(content, attachments)
        if isinstance(content.get("score"), dict):  # before several scorers were possible
            content["scores"] = {"score": content["score"]}
        sample = _Sample.model_validate(content)
        prompt, completion = prompt_and_completion(content)
        error = _error(sample) if sample.error else None
        is_failed = error is not None and not sample.scores
        return Rollout.model_validate(
            {
                **_columns(content, sample, None if is_failed else error),
                "example_id": self._number(content.get("id")),
                "rollout_index": sample.epoch - 1,
                "prompt": prompt,
                "completion": completion,
                "answer": _target(sample.target),
                "info": sample.metadata | _known({"choices": sample.choices}),
                "reward": self.reward.of(sample.scores),
                "metrics": metrics(sample.scores),
                "error": error if is_failed else None,
                "timing": {"generation_ms": None, "scoring_ms": None, "total_ms": _milliseconds(sample.total_time)},
                "is_completed": error is None,
                "is_truncated": sample.limit is not None or sample.stop_reason in _CUT,
                "stop_condition": None if is_failed else "error" if error else _stop(sample),
                "token_usage": self._tokens(sample.model_usage),
                "model": sample.output_model or None,
            }
        )

    def _number(self, sample_id: Any) -> int:
        return self._numbers.setdefault(str(sample_id), len(self._numbers))

    def _tokens(self, usage: Mapping[str, Any]) -> dict[str, int] | None:
        own = usage.get(self._model)
        if not isinstance(own, dict):
            return None
        return {name: own[name] for name in ("input_tokens", "output_tokens") if is_measure(own.get(name))} or None


def _columns(content: Mapping[str, Any], sample: _Sample, error: Mapping[str, Any] | None) -> dict[str, Any]:
    retries = [hide_keys(str(each.get("message"))) for each in sample.error_retries or ()]
    named = {
        "scores": {name: _known(score) for name, score in sample.scores.items() if isinstance(score, dict)},
        "sample_id": content.get("id"),
        "sample_error": error and {name: error[name] for name in ("error", "message")},
        "error_retries": retries,
    }
    return _known({name: content.get(name) for name in _STATE} | named)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _target(target: Any) -> Any:
    return target[0] if isinstance(target, list) and len(target) == 1 else target or None


def _stop(sample: _Sample) -> str | None:
    if sample.limit is None:
        return sample.stop_reason
    return _STOPS.get(sample.limit, f"{sample.limit}_limit_reached")


def _error(sample: _Sample) -> dict[str, Any]:
    names = _LAST_LINE.findall(sample.traceback) or _CALL.findall(sample.error_message) or ["Error"]
    error = error_row(names[-1].rpartition(".")[2], hide_keys(sample.error_message))
    return error | {"traceback": hide_keys(sample.traceback) or None}


def _run_id(header: _Header) -> str:
    settings = header.settings
    eval_id = settings.get("eval_id") or digest([settings.get(name) for name in _IDENTITY])
    return f"inspect-{eval_id}-{digest(settings.get('scorers'))[:_ID_CHARACTERS]}"


def _versions(header: _Header) -> dict[str, str | None]:
    commit = header.revision.get("commit")
    suffix = "-dirty" if header.revision.get("dirty") else ""
    packages: dict[str, str | None] = {f"{name}_version": str(version) for name, version in header.packages.items()}
    return packages | ({"env_commit": f"{commit}{suffix}"} if commit else {})


def _original(header: _Header, unreadable: list[str]) -> dict[str, Any]:
    return {
        "program": PROGRAM,
        "status": header.status,
        **_known(
            {
                **{name: header.settings.get(name) for name in _IDENTITY},
                "config": without_secrets(header.config),
                "metadata": without_secrets(header.metadata),
                "origin": public_url(str(header.revision.get("origin") or "")),
                "total_samples": header.results.total_samples,
                "completed_samples": header.results.completed_samples,
                "scores": [score.values() for score in header.results.scores],
                "model_usage": header.stats.get("model_usage"),
                "unreadable": unreadable[:MOST_UNREADABLE],
            }
        ),
    }
