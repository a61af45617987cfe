"""``Places``: how many may be under way at once, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType


class Places:
    """A limit of how many are under way at once, which may be changed meanwhile.

    Args:
        ceiling: how many at once; 0 or less for no limit.

    Attributes:
        ceiling: how many at once.
        in_use: how many are under way.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = float(ceiling) if ceiling > 0 else float("inf")
        self.in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_waited_for(self) -> bool:
        """Says whether somebody waits for a place."""
        return any(not place.done() for place in self._waiting)

    def set_ceiling(self, ceiling: float) -> None:
        """Changes how many at once at the most; with 0 none begins. What is under way goes on."""
        self.ceiling = ceiling
        self._wake()

    async def acquire(self, *, is_first: bool = False) -> None:
        """Waits for a place; before all others who wait, where ``is_first``."""
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

    def release(self) -> None:
        """Gives a place back."""
        self.in_use -= 1
        self._wake()

    async def __aenter__(self) -> None:
        """Waits for a place, for the block."""
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Gives it back."""
        self.release()

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Gives a place back while the block lasts, and then waits for one, before those who have not begun."""
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
