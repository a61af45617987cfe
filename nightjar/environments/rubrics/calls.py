"""Calls user code in scoring: reward functions, whose parameters are filled by name, and clean-up handlers."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from contextvars import copy_context
from typing import Any, TypeAlias

from nightjar.core.calling import OverdueError, bound_names, call, function_name, is_async, threads, within
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
        self.is_async = is_async(func)
        self.is_of_state = not self._takes_all and [p.name for p in named] == ["state"]

    def call(self, objects: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Calls the function with the objects that it names, or with all of them if it takes ``**kwargs``."""
        args, named = self._arguments(objects)
        return call(self.func, *args, **named)

    def call_here(self, objects: Mapping[str, Any]) -> Any:
        """Does the same as ``call`` in this thread. An async function gives an awaitable."""
        args, named = self._arguments(objects)
        return self.func(*args, **named)

    def _arguments(self, objects: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        missing = [repr(name) for name in self._required if name not in objects]
        if missing:
            raise TypeError(f"asks for {', '.join(missing)}. Available: {', '.join(sorted(objects))}")
        args = [objects.get(name, default) for name, default in self._positional]
        names = objects.keys() - self._bound if self._takes_all else self._names
        return args, {name: objects[name] for name in names if name in objects}


class CallsInOrder:
    """Calls reward functions one after another, and records their scores as ``metrics``.

    Sync functions that follow each other are called in one thread: handing over takes longer than most functions.
    """

    def __init__(
        self, functions: Sequence[RewardFunction], objects: Mapping[str, Any], metrics: MutableMapping[str, float]
    ) -> None:
        self._left = deque(functions)
        self._objects = objects
        self._metrics = metrics
        self._is_given_up = False

    async def run(self) -> None:
        try:
            while self._left:
                is_of_loop = self._left[0].is_async
                waiting = self._left[0].call_here(self._objects) if is_of_loop else await threads.run(self._call_sync)
                if waiting is not None:
                    self._record(finite_number(await waiting))
        except asyncio.CancelledError:
            self._is_given_up = True  # a thread may still call a function
            raise

    def _call_sync(self) -> Awaitable[Any] | None:
        """Calls functions until one is async or gives an awaitable. Returns that awaitable.

        A function's changes to context variables end with its call.
        """
        while self._left:
            score = copy_context().run(self._left[0].call_here, self._objects)
            if inspect.isawaitable(score):
                return score
            number = finite_number(score)  # may take long, as for a number on a GPU
            if self._is_given_up:
                return None
            self._record(number)
        return None

    def _record(self, score: float) -> None:
        self._metrics[self._left[0].name] = score
        self._left.popleft()


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


def finite_number(score: Any) -> float:
    number = float(score)
    if not math.isfinite(number):
        raise ValueError(f"returned {number}, which is not a finite number")
    return number


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
