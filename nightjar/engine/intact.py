"""Checks that a state can still be scored after user code has run. If it cannot, the rollout fails, but not the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nightjar.core.rollout.records import Key
from nightjar.core.rollout.state import State
from nightjar.core.rollout.usage import RolloutTiming
from nightjar.core.text import shortened
from nightjar.errors import ConfigError

_NOTHING = type(None)
_MAPPING: tuple[type[Any], ...] = (dict, Mapping)
_PARTS: dict[str, tuple[type[Any], ...]] = {
    "input": (dict,),
    "prompt": (list, Sequence),
    "completion": (list, _NOTHING, Sequence),
    "trajectory": (list, Sequence),
    "timing": (RolloutTiming,),
    "tool_defs": (list, _NOTHING, Sequence),
    "error": (_NOTHING, BaseException),
    "metrics": (dict, _NOTHING, Mapping),
}
_OTHERS = ("reward", "advantage", "is_completed", "is_truncated")
_USUAL = ("input", "completion", "trajectory", "timing")
_STEPS, _METRICS = {dict}, {dict, _NOTHING}
_MISSING = object()
_LONGEST = 100


def check_intact(state: State, key: Key) -> None:
    """Raises ``ConfigError`` if a state belongs to another rollout or lacks recorded parts.

    The state's own error is the cause of the ``ConfigError``.
    """
    if (damage := _damage(state, key)) is not None:
        error = state.get("error")
        cause = error if isinstance(error, BaseException) else None
        raise ConfigError(f"The code has ruined the state: {damage}") from cause


def check_scored(state: State, key: Key) -> None:
    """Checks that a state is intact, and converts its scores to plain finite floats.

    Raises ``TypeError`` or ``ValueError`` if a score cannot be converted.
    """
    check_intact(state, key)
    for name in ("reward", "advantage"):
        if state[name] is not None:
            state[name] = _number(name, state[name])
    state["metrics"] = {str(name): _number(name, value) for name, value in (state["metrics"] or {}).items()}


def _number(name: Any, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name!r} is {number}, which is not a finite number")
    return number


def _damage(state: State, key: Key) -> str | None:
    return None if _is_usual(state, key) else _found_damage(state, key)


def _is_usual(state: State, key: Key) -> bool:
    """Returns whether all parts have their usual types. This check is quick."""
    try:
        columns, completion, trajectory, timing = map(state.__getitem__, _USUAL)
        _ = state["reward"], state["advantage"], state["is_completed"], state["is_truncated"]
        return (
            type(columns) is dict
            and (columns["example_id"], columns["rollout_index"]) == key
            and type(columns["prompt"]) is list
            and (completion is None or type(completion) is list)
            and type(trajectory) is list
            and {*map(type, trajectory)} <= _STEPS
            and type(timing) is RolloutTiming
            and type(state["tool_defs"]) is list
            and state["error"] is None
            and type(state["metrics"]) in _METRICS
            and "prompt" not in state
        )
    except KeyError:
        return False


def _found_damage(state: State, key: Key) -> str | None:
    for name, kinds in _PARTS.items():
        value = dict.get(state, name, _MISSING)
        if value is _MISSING:
            value = state.get(name, _MISSING)
        if not isinstance(value, kinds):
            return f"state[{name!r}] is {_shown(value)}"
    for name in _OTHERS:
        if name not in state:
            return f"state[{name!r}] is missing"
    columns = state["input"]
    for name, known in zip(Key._fields, key, strict=True):
        if columns.get(name) != known:
            return f"state['input'][{name!r}] is {_shown(columns.get(name, _MISSING))}"
    if not all(isinstance(step, _MAPPING) for step in state["trajectory"]):
        return "state['trajectory'] holds values that are not steps"
    return None


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - user code
        text = f"a {type(value).__name__}"
    return shortened(text, _LONGEST)
