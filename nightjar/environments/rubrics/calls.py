"""Calls user code in scoring: reward functions, whose parameters are filled by name, and clean-up handlers."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from nightjar.core.calling import OverdueError, bound_names, call, function_name, within
from nightjar.core.calling.functions import user_error

logger = logging.getLogger(__name__)

_PLURALS = ("prompt", "completion", "answer", "info", "task", "state")
GROUP_PARAMETERS = frozenset({"states", "prompts", "completions", "answers", "tasks", "infos"})
"""A reward function with one of these parameters scores a whole group at once."""
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Handler: TypeAlias = Callable[[], Awaitable[Any]]


class RewardFunction:
    """A reward function with its analysed signature; ``is_of_state`` means that its only parameter is the state."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.name = function_name(func)
        self._bound = bound_names(func)
        parameters = inspect.signature(func).parameters
        named = [p for name, p in parameters.items() if name not in self._bound and p.kind not in _STARRED]
        self._positional = [(p.name, p.default) for p in named if p.kind is p.POSITIONAL_ONLY]
        self._names = [p.name for p in named if p.kind is not p.POSITIONAL_ONLY]
        self._required = [p.name for p in named if p.default is p.empty]
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self.is_group = any(p.name in GROUP_PARAMETERS for p in named)
        self.is_of_state = not self._takes_all and [p.name for p in named] == ["state"]

    def call(self, objects: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Calls the function with the objects that it names, or with all of them if it takes ``**kwargs``."""
        missing = [repr(name) for name in self._required if name not in objects]
        if missing:
            raise TypeError(f"asks for {', '.join(missing)}. Available: {', '.join(sorted(objects))}")
        args = [objects.get(name, default) for name, default in self._positional]
        names = objects.keys() - self._bound if self._takes_all else self._names
        return call(self.func, *args, **{name: objects[name] for name in names if name in objects})


def rollout_objects(state: Any) -> dict[str, Any]:
    """Returns the objects of one rollout: its columns, the fields of its task, and its results."""
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
    """Returns the objects of a group as lists; ``each`` has the ``rollout_objects`` of each state."""
    plural: dict[str, Any] = {f"{name}s": [objects.get(name) for objects in each] for name in _PLURALS}
    columns = (states[0].get("input") or {}) if states else {}
    further = {name: [objects.get(name) for objects in each] for name in columns if f"{name}s" not in plural}
    return {**further, **plural}


def distinct_name(name: str, taken: Container[str]) -> str:
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def warn_of_renaming(name: str, distinct: str) -> None:
    logger.warning("Two reward functions are called %r: the second is recorded as %r", name, distinct)


async def run_all(handlers: Iterable[Handler], timeout_seconds: float | None = None) -> None:
    """Calls all handlers in order, each with the time limit, then raises their first error.

    Cancellation interrupts only the current handler and is raised at the end.
    """
    raised = [error for handler in handlers if (error := await _error_of(handler, timeout_seconds)) is not None]
    for further in raised[1:]:
        logger.error("A further clean-up handler failed: %s", further, exc_info=further)
    interruptions = [error for error in raised if not isinstance(error, Exception)]
    if raised:
        raise (interruptions or raised)[0]


async def _error_of(handler: Handler, timeout_seconds: float | None) -> BaseException | None:
    try:
        await within(timeout_seconds, handler())  # type: ignore[arg-type]  # of an async function
    except OverdueError as error:
        late = TimeoutError(f"a clean-up {error}")
        late.__cause__ = error
        return late
    except BaseException as raised:  # noqa: BLE001 - handlers are user code
        try:
            return user_error(raised)
        except BaseException as interruption:  # noqa: BLE001 - it is raised when all handlers have run
            return interruption
    return None
