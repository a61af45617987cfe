"""Converts rollouts to rows of the ledger and the results, and back; see docs/reference/run-directory.md."""

from __future__ import annotations

import operator
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from nightjar.core.messages import Messages, Response, ResponseMessage, dump_message, dump_messages, normalize_messages
from nightjar.core.rollout.state import State, TrajectoryStep, tracker_of
from nightjar.core.rollout.usage import RolloutTiming, context_usage
from nightjar.core.secrecy import error_text, hide_keys
from nightjar.errors import ModelError, OverlongPromptError, ScoringError, error_chain

OWN_KEYS = frozenset(
    {
        "advantage", "client", "completion", "error", "final_env_response", "input", "is_completed",
        "is_truncated", "metrics", "model", "reward", "sampling_args", "stop_condition", "timing",
        "tool_defs", "trajectory", "trajectory_id", "usage", "usage_tracker",
    }
)  # fmt: skip
"""The keys of every state. Any other key belongs to the environment."""


class Key(NamedTuple):
    example_id: int
    rollout_index: int


_LONGEST_ENTRY = 10_000
_AS_IT_IS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
"""Refuses values that would be read as another type."""
_RESPONSE_FIELDS = ("id", "created", "model", "is_cached")


class RolloutOutput(dict[str, Any]):
    """A rollout as a row of ``results.jsonl``. A metric can be read by its name: ``row["correct"]``.

    Example:
        >>> RolloutOutput(reward=1.0, metrics={"correct": 1.0})["correct"]
        1.0
    """

    def __missing__(self, key: str) -> Any:
        return dict.get(self, "metrics", {})[key]


def key_of(state: State) -> Key:
    columns = state["input"]
    return Key(columns["example_id"], columns["rollout_index"])


def error_row(error: BaseException | Mapping[str, Any] | None) -> Any:
    """Returns the record of an error. Only an error that code raised has a traceback."""
    if error is None or isinstance(error, Mapping):
        return error
    chain = list(error_chain(error))
    is_endpoint = isinstance(error, ModelError | OverlongPromptError) or any(hasattr(c, "status_code") for c in chain)
    is_code = isinstance(error, ScoringError) or not is_endpoint
    return {
        "error": type(error).__name__,
        "message": error_text(error),
        "phase": "scoring" if isinstance(error, ScoringError) else "generation",
        "error_chain_repr": " -> ".join(type(cause).__name__ for cause in chain),
        "error_chain_str": " -> ".join(f"{type(cause).__name__}: {error_text(cause)}" for cause in chain),
        "traceback": _traceback(error) if is_code else None,
    }


def _traceback(error: BaseException) -> str:
    entries = map(hide_keys, traceback.format_exception(error))
    return "".join(entry if len(entry) <= _LONGEST_ENTRY else f"{entry[:_LONGEST_ENTRY]}…\n" for entry in entries)


def attempt_row(state: State, attempt: int, example_hash: str) -> tuple[dict[str, Any], list[str]]:
    """Returns the row of an attempt, which suffices to score the attempt later, and the keys that JSON cannot hold."""
    failed = state["error"] is not None
    extras, unsaved = _extras(state)
    own = {"extras": extras} | ({"unsaved": unsaved} if unsaved else {})
    row = {
        "example_id": state["example_id"],
        "rollout_index": state["input"]["rollout_index"],
        "example_hash": example_hash,
        "attempt": attempt,
        "finished_at": round(time.time(), 3),
        "error": error_row(state["error"]),
        "generation_ms": state["timing"]["generation_ms"],
        "token_usage": tracker_of(state).record(),
        "state": None if failed else _saved_state(state) | own,
    }
    return row, unsaved


def _extras(state: State) -> tuple[dict[str, Any], list[str]]:
    extras: dict[str, Any] = {}
    unsaved = []
    for name, value in state.items():
        if name not in OWN_KEYS:
            try:
                extras[name] = orjson.Fragment(orjson.dumps(value, option=_AS_IT_IS))
            except TypeError:
                unsaved.append(name)
    if not all(is_json_serializable(step.get("extras")) for step in state.get("trajectory") or ()):
        unsaved.append("trajectory[].extras")
    return extras, unsaved


def _saved_state(state: State) -> dict[str, Any]:
    prompt, completion = state["prompt"], state["completion"]
    conversation = [*prompt, *completion] if isinstance(completion, list) else list(prompt)
    saved: dict[str, Any] = {}
    if changed := state.changed_input():
        saved["input"] = {name: dump_messages(v) if name == "prompt" else v for name, v in changed.items()}
    if state.get("final_env_response") is not None:
        saved["final_env_response"] = dump_messages(state["final_env_response"])
    return saved | {
        "completion": dump_messages(completion),
        "trajectory": [
            _saved_step(step, conversation, latency)
            for step, latency in zip(state["trajectory"], _latencies(state), strict=True)
        ],
        "stop_condition": state.get("stop_condition"),
        "is_completed": state["is_completed"],
        "is_truncated": state["is_truncated"],
        "trajectory_id": state["trajectory_id"],
    }


def is_json_serializable(value: Any) -> bool:
    """Returns whether a value can be written as JSON and read back unchanged."""
    try:
        orjson.dumps(value, option=_AS_IT_IS)
    except TypeError:
        return False
    return True


def _latencies(state: State) -> Sequence[float | None]:
    spans = state["timing"].model.spans if isinstance(state["timing"], RolloutTiming) else []
    if len(spans) != len(state["trajectory"]):
        return [None] * len(state["trajectory"])
    return [round(span.duration * 1000, 3) for span in spans]


def _saved_step(step: TrajectoryStep, conversation: Sequence[Any], latency_ms: float | None) -> dict[str, Any]:
    start, extras = len(step["prompt"]), step.get("extras") or {}
    end = start + len(step["completion"])
    return {
        "prompt": _reference(step["prompt"], conversation[:start]),
        "completion": _reference(step["completion"], conversation[start:end]),
        "response": _saved_response(step.get("response")),
        "is_truncated": bool(step.get("is_truncated")),
        "reward": step.get("reward"),
        "tokens": step.get("tokens"),
        "latency_ms": latency_ms,
        "extras": extras if is_json_serializable(extras) else {},
    }


def _saved_response(response: Any) -> dict[str, Any] | None:
    if not isinstance(response, Response):
        return None
    saved: dict[str, Any] = {field: getattr(response, field) for field in _RESPONSE_FIELDS}
    return saved | {"usage": dump_message(response.usage), "finish_reason": response.message.finish_reason}


def _reference(messages: Messages, stretch: Sequence[Any]) -> Any:
    """Returns the messages, or only their number if they are ``stretch``, a part that is stored once."""
    is_stretch = len(messages) == len(stretch) and all(map(operator.is_, messages, stretch))
    return len(messages) if is_stretch else dump_messages(messages)


def restore_state(state: State, attempt: Mapping[str, Any]) -> State:
    saved = attempt["state"]
    state.update(saved["extras"])
    for name, value in saved.get("input", {}).items():
        state["input"][name] = normalize_messages(value) if name == "prompt" else value
    if "final_env_response" in saved:
        state["final_env_response"] = normalize_messages(saved["final_env_response"])
    completion = saved["completion"]
    if isinstance(completion, list):
        completion = normalize_messages(completion)
    state["completion"] = completion
    state["trajectory_id"] = saved.get("trajectory_id", state["trajectory_id"])
    conversation = [*state["prompt"], *(completion or [])]
    state["trajectory"] = [_restored_step(step, conversation, state["trajectory_id"]) for step in saved["trajectory"]]
    for key in ("stop_condition", "is_completed", "is_truncated"):
        state[key] = saved[key]
    if attempt["token_usage"]:
        tracker_of(state).restore(attempt["token_usage"])
    state["timing"].restore(attempt["generation_ms"])
    return state


def _restored_step(saved: Mapping[str, Any], conversation: Messages, trajectory_id: str) -> TrajectoryStep:
    prompt = _dereference(saved["prompt"], conversation)
    completion = _dereference(saved["completion"], conversation[len(prompt) :])
    return TrajectoryStep(
        prompt=prompt,
        completion=completion,
        response=_restored_response(saved, completion),  # type: ignore[typeddict-item]
        tokens=saved.get("tokens"),
        reward=saved["reward"],
        advantage=None,
        is_truncated=saved["is_truncated"],
        trajectory_id=trajectory_id,
        extras=saved["extras"],
    )


def _restored_response(saved: Mapping[str, Any], completion: Messages) -> Response | None:
    if saved["response"] is None:
        return None
    fields = dict(saved["response"])
    message = ResponseMessage.model_validate(
        {
            **(dump_message(completion[0]) if completion else {}),
            "finish_reason": fields.pop("finish_reason"),
            "is_truncated": saved["is_truncated"],
        }
    )
    return Response(**fields, message=message)


def _dereference(reference: Any, conversation: Messages) -> Messages:
    return conversation[:reference] if isinstance(reference, int) else normalize_messages(reference)


def result_row(state: State, *, attempts: int, example_hash: str, state_columns: Sequence[str] = ()) -> RolloutOutput:
    """Returns the result row of a rollout. A state column that JSON cannot hold is written as its ``repr``."""
    timing, trajectory, usage = state["timing"], state["trajectory"], tracker_of(state).record()
    row: dict[str, Any] = {
        "example_id": state["example_id"],
        "rollout_index": state["input"]["rollout_index"],
        "example_hash": example_hash,
        "prompt": dump_messages(state["prompt"]),
        "completion": dump_messages(state["completion"]),
        **{name: state["input"][name] for name in ("answer", "info", "task") if state["input"].get(name)},
        "reward": state["reward"],
        "advantage": state["advantage"],
        "metrics": state["metrics"] or {},
        "error": error_row(state["error"]),
        "timing": {key: timing[key] for key in ("generation_ms", "scoring_ms", "total_ms")},
        "is_completed": state["is_completed"],
        "is_truncated": state["is_truncated"],
        "stop_condition": state.get("stop_condition"),
        "token_usage": usage and {**usage, **context_usage(trajectory)},
        "attempts": attempts,
        "model": getattr(trajectory[-1].get("response"), "model", None) if trajectory else None,
    }
    if cached := sum(bool(getattr(step.get("response"), "is_cached", False)) for step in trajectory):
        row["cached_calls"] = cached
    if state["tool_defs"]:
        row["tool_defs"] = [dump_message(tool) for tool in state["tool_defs"]]
    for name in state_columns:
        row.setdefault(name, _column(state.get(name)))
    return RolloutOutput(row)


def _column(value: Any) -> Any:
    try:
        return orjson.loads(orjson.dumps(value, default=_dumped))
    except TypeError:
        pass
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - user code
        return type(value).__name__


def _dumped(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dump_message(value)
    raise TypeError
