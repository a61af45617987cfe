"""Calls code that may be sync or async from code that cannot wait, as the builders of datasets are."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from nightjar.calling import is_in_loop

T = TypeVar("T")


def outside_loops(func: Callable[[], T]) -> T:
    """Returns what ``func`` returns, called where no event loop runs: in another thread where one runs here.

    Example:
        >>> async def two():
        ...     return 2
        >>> outside_loops(lambda: asyncio.run(two()))
        2
    """
    if not is_in_loop():
        return func()
    with ThreadPoolExecutor(1, thread_name_prefix="nightjar-blocking") as pool:
        return pool.submit(func).result()


def settled(runner: asyncio.Runner, value: Any) -> Any:
    """Returns ``value``, or what it gives where it has to be awaited; only then does the runner start its loop.

    Example:
        >>> async def two():
        ...     return 2
        >>> with asyncio.Runner() as runner:
        ...     [settled(runner, 1), settled(runner, two())]
        [1, 2]
    """
    return runner.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Awaitable[T]) -> T:
    return await value
