"""Decides when requests are sent: the pace of an endpoint, and retries.

Endpoints refuse requests (429, 503, 529) that are too many per second or too many at once. If some requests are
accepted meanwhile, the rate is too high: requests are spread out at a little less than the accepted rate, then faster
until some are refused again. If none is accepted while others are in flight, too many are in flight: no more than these
are allowed, and one more after every round of successes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from nightjar.clients.failures import Failure, classify, seconds_until_more
from nightjar.core.calling.limits import Places, backoff_seconds
from nightjar.errors import RunError

_LOOK_SECONDS = 1.0
_STALE_SECONDS = 2.0
_PART_OF_ACCEPTED = 0.95
_SLOWEST = 0.2
_START = 2.0
_FORGOTTEN_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 60.0
_MOST_CHANGES = 200

Endpoint: TypeAlias = tuple[str, int]
"""A base URL, and the hash of the key."""

T = TypeVar("T")

_FIRST_WAIT_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 8.0
_LONGEST_WAIT_SECONDS = 60.0


class Pace:
    """How fast requests are sent to an endpoint; ``places`` limits the requests in flight.

    ``changes`` lists the limits: seconds since the first request, requests in flight, requests per second.
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
        """Limits the requests in flight; the largest limit of all callers counts."""
        self._ceiling = ceiling if self._ceiling == float("inf") else max(self._ceiling, ceiling)
        self.places.set_ceiling(self._ceiling)

    @property
    def rate(self) -> float:
        """Requests per second that may be sent now; grows with the time since the last refusal."""
        since = time.monotonic() - self._rate_since
        if since > _FORGOTTEN_SECONDS:
            self._rate = float("inf")
        return self._rate * (1 + 0.02 * since + 0.003 * since**3)

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        async with self.places:
            await self._turn()
            now = time.monotonic()
            if now - self._window_since > _STALE_SECONDS and not self._refused:
                self._window_since, self._sent = now, 0
            self._sent += 1
            yield

    def answered(self) -> None:
        if (places := self.places).ceiling < self._ceiling:
            places.set_ceiling(min(self._ceiling, places.ceiling + 1 / places.ceiling))

    def failed(self, failure: Failure) -> None:
        if failure.is_overload:
            self.refused += 1
            self._refused += 1
            self._look()

    def heard(self, headers: Mapping[str, Any]) -> None:
        """Reads the headers of a response: no request is sent before the endpoint accepts more."""
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
        """Slows down, at most once a second: requests that were sent earlier only repeat the same refusal."""
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
    """Returns the pace of an endpoint, which all its clients in the running event loop share."""
    known = _paces.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return known.setdefault(endpoint, Pace())


class Watch(Protocol):
    """Observer of requests: the engine, which may stop a run."""

    def check(self) -> None:
        """Raises ``RunError`` if no more requests may be sent."""

    def answered(self, answer: Any) -> None:
        """Records a successful response."""

    def failed(self, failure: Failure, started_at: float) -> bool:
        """Records a failure; returns whether it does not count as a retry. May raise ``RunError``."""

    async def wait(self, seconds: float) -> None:
        """Waits before a retry."""


watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


async def repeat(request: Callable[[], Awaitable[T]], max_retries: int, *, is_last_resort: bool = False) -> T:
    """Sends a request, and retries it after temporary errors; raises the last error, or ``RunError`` if the run stops.

    Waits as the SDKs do (0.5 s, doubled, at most 8 s), or as the endpoint asks, at most a minute. ``is_last_resort``
    also retries errors that another attempt at the rollout could fix.
    """
    watching, counted = watch.get(), 0
    for tries in itertools.count(1):
        if watching is not None:
            watching.check()
        started_at = time.monotonic()
        try:
            answer = await request()
        except RunError:
            raise
        except Exception as error:  # whatever client this is
            failure = classify(error)
            is_excused = watching is not None and watching.failed(failure, started_at)
            counted += not is_excused
            can_heal = failure.is_retryable if is_last_resort else failure.is_repeatable
            if not (can_heal and max_retries) or counted > max_retries:
                raise
            seconds = wait_seconds(tries, failure)
        else:
            if watching is not None:
                watching.answered(answer)
            return answer
        await (asyncio.sleep(seconds) if watching is None else watching.wait(seconds))
    raise AssertionError("unreachable")


def wait_seconds(tries: int, failure: Failure) -> float:
    asked = failure.retry_after_seconds
    longest = _LONGEST_BACKOFF_SECONDS if asked is None else _LONGEST_WAIT_SECONDS
    return backoff_seconds(tries, _FIRST_WAIT_SECONDS, max_seconds=longest, asked_seconds=asked)
