"""Waits for a coroutine where no ``await`` is: in scripts, and in notebooks, whose event loop runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from nightjar.calling.threads import leave_threads_behind

T = TypeVar("T")


def run_sync(awaitable: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end; in a thread of its own where an event loop runs already, as in a notebook."""
    if not is_in_loop():
        return asyncio.run(_awaited(awaitable))
    with start_blocking_portal(name="nightjar-sync") as portal:
        return portal.call(_awaited, awaitable)


def is_in_loop() -> bool:
    """Says whether an event loop runs here. What is raised after this has nothing of it in its chain of errors."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(awaitable: Awaitable[T]) -> T:
    try:
        return await awaitable
    finally:
        leave_threads_behind()
