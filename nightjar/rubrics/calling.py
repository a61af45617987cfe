"""Calls reward functions: arguments by name, blocking functions in threads, a time limit on each."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

GROUP_PARAMETERS = frozenset({"states", "prompts", "completions", "answers", "tasks", "infos"})
"""A reward function with one of these parameters scores a whole group at once."""

THREADS = 32


class RewardFunction:
    """A reward function with what is known of its signature.

    Args:
        func: any callable; sync or async.
        weight: how much its score counts in the reward; 0.0 for a metric.

    Attributes:
        name: of the function, of what a partial wraps, or of a callable's class.
        is_group: it takes the states of a group and returns a score for each.
    """

    def __init__(self, func: Callable[..., Any], weight: float) -> None:
        self.func = func
        self.weight = float(weight)
        self.name = function_name(func)
        parameters = inspect.signature(func).parameters
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._names = frozenset(parameters)
        self.is_group = bool(self._names & GROUP_PARAMETERS)
        self._is_async = is_async(func)

    async def call(self, objects: Mapping[str, Any], timeout_seconds: float | None) -> Any:
        """Calls the function with the objects that it names; with all of them where it takes ``**kwargs``.

        Raises:
            TimeoutError: it takes longer than ``timeout_seconds``.
        """
        chosen = (
            dict(objects)
            if self._takes_all
            else {name: value for name, value in objects.items() if name in self._names}
        )
        async with asyncio.timeout(timeout_seconds):
            if self._is_async:
                return await self.func(**chosen)
            result = await threads.run(functools.partial(self.func, **chosen))
            return await result if inspect.isawaitable(result) else result


def function_name(func: Callable[..., Any]) -> str:
    """Returns the name of a function, of what a ``partial`` wraps, or of a callable's class."""
    if isinstance(func, functools.partial):
        return function_name(func.func)
    return getattr(func, "__name__", None) or type(func).__name__


def is_async(func: Callable[..., Any]) -> bool:
    """Says whether calling ``func`` gives a coroutine."""
    while isinstance(func, functools.partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(
        getattr(func, "__call__", None)  # noqa: B004 - its kind matters, not whether it is there
    )


class WorkerThreads:
    """Threads for blocking user code, which may hang: a thread that outlives its time is left behind.

    Attributes:
        has_stuck: a call was left behind, so the process cannot end by itself.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self.has_stuck = False

    async def run(self, func: Callable[[], Any]) -> Any:
        """Runs ``func`` in a thread, with the caller's context variables."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="nightjar")
        context = contextvars.copy_context()
        future = self._executor.submit(context.run, func)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.running():
                self._leave_behind()
            raise

    def _leave_behind(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        self._executor = None
        self.has_stuck = True


threads = WorkerThreads()
"""Shared by all rubrics of the process."""
