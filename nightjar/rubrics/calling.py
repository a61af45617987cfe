"""Calls reward functions: arguments by name, blocking functions in threads."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from nightjar.rubrics.threads import threads

GROUP_PARAMETERS = frozenset({"states", "prompts", "completions", "answers", "tasks", "infos"})
"""A reward function with one of these parameters scores a whole group at once."""


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
        self._bound = bound_names(func)
        self._names = frozenset(parameters) - self._bound
        self.is_group = bool(self._names & GROUP_PARAMETERS)
        self._is_async = is_async(func)

    async def call(self, objects: Mapping[str, Any]) -> Any:
        """Calls the function with the objects that it names; with all of them where it takes ``**kwargs``."""
        wanted = objects.keys() - self._bound if self._takes_all else self._names & objects.keys()
        chosen = {name: objects[name] for name in wanted}
        if self._is_async:
            return await self.func(**chosen)
        result = await threads.run(functools.partial(self.func, **chosen))
        return await result if inspect.isawaitable(result) else result


def function_name(func: Callable[..., Any]) -> str:
    """Returns the name of a function, of what a ``partial`` wraps, or of a callable's class."""
    if isinstance(func, functools.partial):
        return function_name(func.func)
    return getattr(func, "__name__", None) or type(func).__name__


def bound_names(func: Callable[..., Any]) -> frozenset[str]:
    """Returns the keyword arguments that a ``partial`` has settled already."""
    return frozenset(func.keywords) if isinstance(func, functools.partial) else frozenset()


def is_async(func: Callable[..., Any]) -> bool:
    """Says whether calling ``func`` gives a coroutine."""
    while isinstance(func, functools.partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(
        getattr(func, "__call__", None)  # noqa: B004 - its kind matters, not whether it is there
    )
