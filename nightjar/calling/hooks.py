"""Calls hooks, which take as many of the arguments on offer as they like."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any

from nightjar.calling.functions import call, is_async


def call_named(func: Callable[..., Any], **objects: Any) -> Coroutine[Any, Any, Any]:
    """Calls ``func``, to be awaited, with those of ``objects`` that it names; with all where it takes ``**kwargs``.

    Where it names none of them and takes one argument, it gets the first. Sync functions run in a thread.

    Example:
        >>> import asyncio
        >>> def stop(state):
        ...     return state["turns"] > 3
        >>> asyncio.run(call_named(stop, state={"turns": 4}, env=None))
        True
    """
    names, is_coroutine = _signature(getattr(func, "__func__", func))
    if names is not None:
        named = {name: value for name, value in objects.items() if name in names}
        if not named and len(names) > inspect.ismethod(func):
            return call(func, next(iter(objects.values())))
        objects = named
    return func(**objects) if is_coroutine else call(func, **objects)


@lru_cache(maxsize=4096)
def _signature(func: Callable[..., Any]) -> tuple[frozenset[str] | None, bool]:
    """Returns the names of a function's parameters, None where it takes any; and whether it is async."""
    parameters = inspect.signature(func).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else frozenset(parameter.name for parameter in parameters), is_async(func)
