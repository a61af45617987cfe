"""How many rollouts run at once: a ceiling that the user sets, lowered while the endpoint is overloaded."""

from __future__ import annotations

import asyncio
import time
from collections import deque

_DECREASE = 0.5
_SETTLING_SECONDS = 1.0


class AdaptiveLimit:
    """A first-come-first-served limit: additive increase, multiplicative decrease.

    Halved when the endpoint asks for less (at most once a second, since requests already under way
    say the same thing again), raised by one after as many successes as are allowed at once.

    Args:
        ceiling: how many at once at the most; 0 or less for no limit.

    Attributes:
        allowed: how many at once now.
        in_use: how many are under way.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = float(ceiling) if ceiling > 0 else float("inf")
        self.allowed = self.ceiling
        self.in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lowered_at = 0.0

    async def acquire(self) -> None:
        """Waits for a place."""
        if not self._waiting and self.in_use + 1 <= self.allowed:
            self.in_use += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
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

    def raise_limit(self) -> None:
        """Takes note of a success."""
        if self.allowed < self.ceiling:
            self.allowed = min(self.ceiling, self.allowed + 1 / self.allowed)
            self._wake()

    def lower_limit(self) -> None:
        """Takes note that the endpoint is overloaded."""
        now = time.monotonic()
        if now - self._lowered_at >= _SETTLING_SECONDS:
            self._lowered_at = now
            self.allowed = max(1.0, min(self.allowed, float(self.in_use)) * _DECREASE)

    def _wake(self) -> None:
        while self._waiting and self.in_use + 1 <= self.allowed:
            place = self._waiting.popleft()
            if not place.done():
                self.in_use += 1
                place.set_result(None)
