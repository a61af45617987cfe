"""How many rollouts run at once: a ceiling that the user sets, lowered while the endpoint is overloaded."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

_DECREASE = 0.5
_TOLERATED_REFUSALS = 0.1
_SETTLING_SECONDS = 1.0


def fair_shares(limit: int, wanted: Sequence[int]) -> list[int]:
    """Divides a limit among runs: evenly, and what one does not want among the others; of a rest the first have more.

    Example:
        >>> fair_shares(8, [8, 2, 8]), fair_shares(2, [4, 4, 4])
        ([3, 2, 3], [1, 1, 0])
    """
    shares, left = [0] * len(wanted), limit
    modest_first = sorted(range(len(wanted)), key=lambda run: (wanted[run], -run))
    for runs_left, run in zip(range(len(wanted), 0, -1), modest_first, strict=True):
        shares[run] = min(wanted[run], left // runs_left)
        left -= shares[run]
    return shares


class AdaptiveLimit:
    """A first-come-first-served limit: additive increase, multiplicative decrease.

    Halved when more than a tenth of the attempts since the last look were refused, looking at most once a second,
    since requests already under way say the same thing again; a few refusals are left to the retries. Raised by one
    after as many successes as are allowed at once.

    Args:
        ceiling: how many at once at the most; 0 or less for no limit.

    Attributes:
        ceiling: how many at once at the most.
        allowed: how many at once now; a fraction counts when it has grown to a whole.
        in_use: how many are under way.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = float(ceiling) if ceiling > 0 else float("inf")
        self.allowed = self.ceiling
        self.in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._attempts = 0
        self._refusals = 0
        self._looked_at = 0.0

    @property
    def is_waited_for(self) -> bool:
        """Says whether somebody waits for a place."""
        return any(not place.done() for place in self._waiting)

    def set_ceiling(self, ceiling: int) -> None:
        """Changes how many at once at the most; with 0 none begins. What is under way goes on."""
        is_lowered = self.allowed < self.ceiling
        self.ceiling = float(ceiling)
        self.allowed = min(self.allowed, self.ceiling) if is_lowered else self.ceiling
        self._wake()

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
        self._attempts += 1
        if self.allowed < self.ceiling:
            self.allowed = min(self.ceiling, self.allowed + 1 / self.allowed)
            self._wake()

    def lower_limit(self) -> None:
        """Takes note that the endpoint refused: it is overloaded, or away."""
        self._attempts += 1
        self._refusals += 1
        now = time.monotonic()
        if now - self._looked_at < _SETTLING_SECONDS:
            return
        if self._refusals > self._attempts * _TOLERATED_REFUSALS:
            self.allowed = min(self.ceiling, max(1.0, min(self.allowed, float(self.in_use)) * _DECREASE))
        self._looked_at, self._attempts, self._refusals = now, 0, 0

    def _wake(self) -> None:
        while self._waiting and self.in_use + 1 <= self.allowed:
            place = self._waiting.popleft()
            if not place.done():
                self.in_use += 1
                place.set_result(None)
