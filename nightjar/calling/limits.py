"""Time limits for user code, at no cost for code that does not wait."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class OverdueError(TimeoutError):
    """Something took longer than it may. Where it stood is in its cause (``__cause__``).

    Attributes:
        seconds: how long it had.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(seconds)

    def __str__(self) -> str:
        return f"took longer than {self.seconds:g} s"


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Waits for a coroutine as long as it may take.

    It runs at once until it first waits for something: what never does needs no timer, and most hooks are so.

    Args:
        seconds: its limit; None for none.
        work: the coroutine, not begun.

    Raises:
        OverdueError: it takes longer. A ``TimeoutError`` of its own is raised as it is.
    """
    if seconds is None:
        return await work
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await _go_on(work, waits_for)
    except TimeoutError as error:
        if limit.expired():
            raise OverdueError(seconds) from error
        raise


@types.coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Takes a coroutine from where it first waits to its end."""
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it goes to where the coroutine waits
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as done:
        result: T = done.value
        return result
