"""Calls reward functions with the arguments that they name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from nightjar.calling import bound_names, call, function_name

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

    Example:
        >>> import asyncio
        >>> def exact(completion, answer):
        ...     return float(completion == answer)
        >>> function = RewardFunction(exact)
        >>> function.name, function.is_group, asyncio.run(function.call({"completion": "4", "answer": "4", "info": {}}))
        ('exact', False, 1.0)
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
