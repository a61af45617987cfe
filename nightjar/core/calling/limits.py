"""Limits: how long a call takes, how many calls run at once, and how long to wait before a retry."""

from __future__ import annotations

import asyncio
import random
import types
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from nightjar.core.calling.time_limits import time_limit

_MAX_DOUBLINGS = 30

T = TypeVar("T")


def backoff_seconds(
    attempts: int,
    initial_seconds: float,
    *,
    max_seconds: float,
    asked_seconds: float | None = None,
    factor: float = 2.0,
) -> float:
    """Returns the wait before retry ``attempts`` (from 1): ``asked_seconds`` or exponential with jitter, bounded."""
    backoff = initial_seconds * factor ** min(attempts - 1, _MAX_DOUBLINGS)
    wanted = backoff if asked_seconds is None else asked_seconds
    return min(wanted + random.uniform(0.0, initial_seconds), max_seconds)  # noqa: S311 - it spreads retries


class OverdueError(TimeoutError):
    """A call exceeded its limit of ``seconds``. The error's ``__cause__`` shows where the call waited."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(seconds)

    def __str__(self) -> str:
        return f"took longer than {self.seconds:g} s"


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Awaits a coroutine that has not started. Raises ``OverdueError`` after ``seconds`` (None means no limit)."""
    # Run up to the first wait without a timer: most hooks never wait.
    if seconds is None:
        return await work
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    limit = time_limit(seconds)
    try:
        with limit:
            return await _go_on(work, waits_for)
    except TimeoutError as error:
        if limit.has_expired:
            raise OverdueError(seconds) from error
        raise


@types.coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
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


class Places:
    """A first-come, first-served semaphore whose limit can change.

    A ``ceiling`` of 0 or less means no limit at the start.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = float(ceiling) if ceiling > 0 else float("inf")
        self.in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_waited_for(self) -> bool:
        return any(not place.done() for place in self._waiting)

    def set_ceiling(self, ceiling: float) -> None:
        """Changes the limit. With a limit of 0, no call starts. Running calls continue."""
        self.ceiling = ceiling
        self._wake()

    async def acquire(self, *, is_first: bool = False) -> None:
        if not self._waiting and self.in_use + 1 <= self.ceiling:
            self.in_use += 1
            return
        place = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if is_first else self._waiting.append)(place)
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()
            raise

    def occupy(self) -> None:
        """Takes a place for a call that has already started, at once and even above the limit."""
        self.in_use += 1

    def release(self) -> None:
        self.in_use -= 1
        self._wake()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Releases the place during the block, and then waits for a place ahead of calls that have not started."""
        self.release()
        try:
            yield
        finally:
            await self.acquire(is_first=True)

    def _wake(self) -> None:
        while self._waiting and self.in_use + 1 <= self.ceiling:
            place = self._waiting.popleft()
            if not place.done():
                self.in_use += 1
                place.set_result(None)


scoring_places: ContextVar[Places] = ContextVar("scoring_places")
