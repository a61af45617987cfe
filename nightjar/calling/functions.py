"""What is known of a function before it is called, and the call itself.

Hooks take as many of the arguments on offer as they like.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Coroutine
from typing import Any

from nightjar.calling.threads import threads


def call(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
    """Calls a function, to be awaited: an async one in the event loop, any other one in a thread.

    Returns what it returns. A function that blocks so stalls nobody else. What it raises is raised here.
    """
    if is_async(func):
        coroutine: Coroutine[Any, Any, Any] = func(*args, **kwargs)
        return coroutine
    return _in_thread(functools.partial(func, *args, **kwargs))


async def _in_thread(func: Callable[[], Any]) -> Any:
    result = await threads.run(func)
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
    plain = getattr(func, "__func__", func)
    if type(plain) is types.FunctionType:
        return _is_coroutine_function(plain)
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(
        getattr(func, "__call__", None)  # noqa: B004 - its kind matters, not whether it is there
    )


_is_coroutine_function = functools.lru_cache(maxsize=4096)(inspect.iscoroutinefunction)


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


@functools.lru_cache(maxsize=4096)
def _signature(func: Callable[..., Any]) -> tuple[frozenset[str] | None, bool]:
    """Returns the names of a function's parameters, None where it takes any; and whether it is async."""
    parameters = inspect.signature(func).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else frozenset(parameter.name for parameter in parameters), is_async(func)
