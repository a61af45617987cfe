"""Calls user code, sync or async, and imports files of user code."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

from nightjar.core.calling.threads import threads
from nightjar.errors import error_chain


def call(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
    """Calls an async function in the event loop, and any other function in a thread, where it may block."""
    if is_async(func):
        coroutine: Coroutine[Any, Any, Any] = func(*args, **kwargs)
        return coroutine
    return _in_thread(functools.partial(func, *args, **kwargs))


async def _in_thread(func: Callable[[], Any]) -> Any:
    result = await threads.run(func)
    return await result if inspect.isawaitable(result) else result


def function_name(func: Callable[..., Any]) -> str:
    if isinstance(func, functools.partial):
        return function_name(func.func)
    return getattr(func, "__name__", None) or type(func).__name__


def bound_names(func: Callable[..., Any]) -> frozenset[str]:
    return frozenset(func.keywords) if isinstance(func, functools.partial) else frozenset()


def is_async(func: Callable[..., Any]) -> bool:
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
    """Calls ``func`` with the ``objects`` that its parameters name, or with all objects if it takes ``**kwargs``."""
    names, is_coroutine = _signature(getattr(func, "__func__", func))
    if names is not None:
        named = {name: value for name, value in objects.items() if name in names}
        if not named and len(names) > inspect.ismethod(func):
            return call(func, next(iter(objects.values())))
        objects = named
    return func(**objects) if is_coroutine else call(func, **objects)


def takes_only(func: Callable[..., Any], names: Collection[str]) -> bool:
    """Returns whether all parameters of a function have one of these names."""
    parameters, _ = _signature(getattr(func, "__func__", func))
    return parameters is not None and all(name in names or name == "self" for name in parameters)


@functools.lru_cache(maxsize=4096)
def _signature(func: Callable[..., Any]) -> tuple[frozenset[str] | None, bool]:
    """Returns a function's parameter names (None if it takes ``**kwargs``), and whether the function is async."""
    parameters = inspect.signature(func).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else frozenset(parameter.name for parameter in parameters), is_async(func)


def user_error(raised: BaseException) -> Exception:
    """Converts a ``sys.exit()`` or a cancellation in user code to an ordinary exception, which does not end the run.

    Ctrl-C and the cancellation of this task itself are raised again.
    """
    # The error is kept until the rollout is recorded. The frames of the error must not keep the user's objects alive.
    for error in error_chain(raised):
        traceback.clear_frames(error.__traceback__)
    if isinstance(raised, Exception):
        return raised
    task = asyncio.current_task()
    if isinstance(raised, KeyboardInterrupt | GeneratorExit) or (task is not None and task.cancelling()):
        raise raised
    wrapped = RuntimeError(f"the code raised {type(raised).__name__}: {raised}")
    wrapped.__cause__ = raised
    return wrapped


def run_file(path: Path) -> ModuleType:
    """Imports a user's file. The file can import modules in its folder, which do not hide installed modules."""
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.append(folder)
    spec: Any = importlib.util.spec_from_file_location(f"{path.stem} of {folder}", path.resolve())
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for the types of their fields
    spec.loader.exec_module(module)
    return module
