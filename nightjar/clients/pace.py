"""``Pace``: how fast an endpoint is asked, by all in this process who ask it.

Endpoints refuse (429, 503, 529) for two reasons: too many requests a second, or too many at once. Where some are
accepted while others are refused, it is the first: requests are spread out, at a little less than what was accepted,
and then faster and faster until some are refused again. Where none is accepted while others are under way, it is the
second: no more than these are let in flight, and one more for every round of successes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from nightjar.calling.places import Places
from nightjar.clients.failures import Failure
from nightjar.clients.rate_headers import seconds_until_more

_LOOK_SECONDS = 1.0
_STALE_SECONDS = 2.0
_PART_OF_ACCEPTED = 0.95
_SLOWEST = 0.2
_START = 2.0
_FORGOTTEN_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 60.0
_MOST_CHANGES = 200

Endpoint: TypeAlias = tuple[str, int]
"""What a pace is for: a base URL, and the hash of the key."""


class Pace:
    """How fast an endpoint may be asked.

    Attributes:
        places: requests in flight, and how many there may be.
        refused: requests that were refused so far, because they were too many.
        changes: when it was changed: seconds since the first request, how many may be in flight, and how many a second;
            None for no limit.
    """

    def __init__(self) -> None:
        self.places = Places(0)
        self.refused = 0
        self.changes: list[tuple[float, int | None, float | None]] = []
        self._ceiling = float("inf")
        self._began_at = time.monotonic()
        self._rate = float("inf")
        self._rate_since = 0.0
        self._next_at = 0.0
        self._window_since = 0.0
        self._sent = 0
        self._refused = 0

    def allow(self, ceiling: float) -> None:
        """Lets so many requests be in flight at the most, unless another who asks lets more."""
        self._ceiling = ceiling if self._ceiling == float("inf") else max(self._ceiling, ceiling)
        self.places.set_ceiling(self._ceiling)

    @property
    def rate(self) -> float:
        """How many requests may be sent a second, now: faster again, the longer none was refused."""
        since = time.monotonic() - self._rate_since
        if since > _FORGOTTEN_SECONDS:
            self._rate = float("inf")
        return self._rate * (1 + 0.02 * since + 0.003 * since**3)

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Waits until a request may be sent; it is in flight while the block lasts."""
        async with self.places:
            await self._turn()
            now = time.monotonic()
            if now - self._window_since > _STALE_SECONDS and not self._refused:
                self._window_since, self._sent = now, 0
            self._sent += 1
            yield

    def answered(self) -> None:
        """Takes note of an answer."""
        if (places := self.places).ceiling < self._ceiling:
            places.set_ceiling(min(self._ceiling, places.ceiling + 1 / places.ceiling))

    def failed(self, failure: Failure) -> None:
        """Takes note of a failure."""
        if failure.is_overload:
            self.refused += 1
            self._refused += 1
            self._look()

    def heard(self, headers: Mapping[str, Any]) -> None:
        """Takes note of an answer's headers: no request is sent before the endpoint accepts more."""
        if seconds := seconds_until_more(headers):
            until = time.monotonic() + min(seconds, _LONGEST_PAUSE_SECONDS)
            self._next_at = max(self._next_at, until)

    async def _turn(self) -> None:
        now, rate = time.monotonic(), self.rate
        starts_at = max(now, self._next_at)
        self._next_at = starts_at + 1 / rate
        if starts_at > now:
            await asyncio.sleep(starts_at - now)

    def _look(self) -> None:
        """Slows down, once a second at the most: what was sent before says the same thing again."""
        now = time.monotonic()
        seconds = now - self._window_since
        if seconds < _LOOK_SECONDS and self._rate_since:
            return
        accepted, under_way = self._sent - self._refused, self.places.in_use - 1
        if accepted > 0:
            self._slow_down(max(_SLOWEST, _PART_OF_ACCEPTED * accepted / max(seconds, _LOOK_SECONDS)), now)
        elif under_way > 0:
            self.places.set_ceiling(min(self.places.ceiling, under_way))
        else:
            self._slow_down(max(_SLOWEST, min(self.rate, _START) / 2), now)
        self._window_since, self._sent, self._refused = now, 0, 0
        self._note(now)

    def _slow_down(self, rate: float, now: float) -> None:
        self._rate, self._rate_since = rate, now
        self._next_at = max(self._next_at, now)

    def _note(self, now: float) -> None:
        at_once = None if self.places.ceiling == float("inf") else int(self.places.ceiling)
        rate = None if self._rate == float("inf") else round(self._rate, 2)
        self.changes.append((round(now - self._began_at, 1), at_once, rate))
        if len(self.changes) > _MOST_CHANGES:
            del self.changes[1::2]


_paces: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Endpoint, Pace]] = WeakKeyDictionary()


def pace_of(endpoint: Endpoint) -> Pace:
    """Returns the pace of an endpoint in the running event loop, the same for all who ask, while somebody keeps it."""
    known = _paces.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return known.setdefault(endpoint, Pace())
