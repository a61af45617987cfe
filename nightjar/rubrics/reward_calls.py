"""Reward functions: their names, what they can ask for by name, and their calls."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from typing import Any

from nightjar.calling import bound_names, call, function_name

logger = logging.getLogger(__name__)

_PLURALS = ("prompt", "completion", "answer", "info", "task", "state")
GROUP_PARAMETERS = frozenset({"states", "prompts", "completions", "answers", "tasks", "infos"})
"""A reward function with one of these parameters scores a whole group at once."""


class RewardFunction:
    """A reward function with what is known of its signature.

    Args:
        func: any callable; sync or async.

    Attributes:
        name: of the function, of what a partial wraps, or of a callable's class.
        is_group: it takes the states of a group and returns a score for each.
        is_of_state: it asks for the state alone.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.name = function_name(func)
        self._bound = bound_names(func)
        parameters = inspect.signature(func).parameters
        named = [p for name, p in parameters.items() if name not in self._bound and _is_named(p)]
        self._positional = [(p.name, p.default) for p in named if p.kind is p.POSITIONAL_ONLY]
        self._names = [p.name for p in named if p.kind is not p.POSITIONAL_ONLY]
        self._required = [p.name for p in named if p.default is p.empty]
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self.is_group = any(p.name in GROUP_PARAMETERS for p in named)
        self.is_of_state = not self._takes_all and [p.name for p in named] == ["state"]

    def call(self, objects: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Calls the function, to be awaited, with the objects that it names; with all where it takes ``**kwargs``.

        Raises:
            TypeError: it names, without a default, what is not there; what there is, is listed.
        """
        missing = [repr(name) for name in self._required if name not in objects]
        if missing:
            raise TypeError(f"asks for {', '.join(missing)}. Available: {', '.join(sorted(objects))}")
        args = [objects.get(name, default) for name, default in self._positional]
        names = objects.keys() - self._bound if self._takes_all else self._names
        return call(self.func, *args, **{name: objects[name] for name in names if name in objects})


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}


def rollout_objects(state: Any) -> dict[str, Any]:
    """Returns what is known of one rollout: its columns, the fields of its task, and what happened."""
    columns, task = state.get("input") or {}, state.get("task", "")
    return {
        **columns,
        **(task if isinstance(task, Mapping) else {}),
        "prompt": state.get("prompt"),
        "completion": state.get("completion"),
        "answer": state.get("answer", columns.get("answer", "")),
        "info": state.get("info", columns.get("info", {})),
        "task": task,
        "state": state,
    }


def group_objects(states: Sequence[Any], each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the objects of a group's rollouts as lists: ``prompts``, ``answers``, …, and further columns.

    Args:
        states: the rollouts.
        each: what ``rollout_objects`` returns for each.
    """
    plural: dict[str, Any] = {f"{name}s": [objects.get(name) for objects in each] for name in _PLURALS}
    columns = (states[0].get("input") or {}) if states else {}
    further = {name: [objects.get(name) for objects in each] for name in columns if f"{name}s" not in plural}
    return {**further, **plural}


def distinct_name(name: str, taken: Container[str]) -> str:
    """Returns ``name``, or ``name_2``, ``name_3``, … where it is taken."""
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def warn_of_renaming(name: str, distinct: str) -> None:
    """Says under which name the second of two functions is recorded."""
    logger.warning("Two reward functions are called %r: one is recorded as %r", name, distinct)
