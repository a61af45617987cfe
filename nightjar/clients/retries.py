"""Retries of single requests, and the observer that may stop them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from nightjar.clients.failures import Failure, classify
from nightjar.clients.pace import Pace
from nightjar.core.calling.limits import backoff_seconds
from nightjar.errors import RunError

T = TypeVar("T")

_FIRST_WAIT_SECONDS = 0.5
_SHORTEST_WAIT_SECONDS = 0.05
_LONGEST_BACKOFF_SECONDS = 8.0
_LONGEST_WAIT_SECONDS = 60.0


class Watch(Protocol):
    """Observer of requests: the engine, which may stop a run."""

    def check(self) -> None:
        """Raises ``RunError`` if no more requests may be sent."""

    def answered(self, answer: Any) -> None:
        """Records a successful response."""

    def failed(self, failure: Failure, started_at: float, *, has_retries: bool) -> bool:
        """Records a failure. Returns True if the next try does not count as a retry. May raise ``RunError``.

        ``has_retries``: the request may be retried at all.
        """

    def moved(self, failure: Failure) -> None:
        """Records a failure after which the request is sent to another replica."""

    async def wait(self, seconds: float) -> None:
        """Waits before a retry."""


watch: ContextVar[Watch | None] = ContextVar("watch", default=None)
"""Observes the requests of this context; None outside a run."""


async def repeat(
    request: Callable[[], Awaitable[T]],
    max_retries: int,
    *,
    is_last_resort: bool = False,
    paces: Callable[[], Sequence[Pace]] = tuple,
) -> T:
    """Sends a request, and retries it after temporary errors. Raises the last error, or ``RunError`` if the run stops.

    With ``is_last_resort``, there will be no other attempt at the rollout, so errors that it could fix are retried too.
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
            is_excused = watching is not None and watching.failed(failure, started_at, has_retries=max_retries > 0)
            counted += not is_excused
            can_heal = failure.is_retryable if is_last_resort else failure.is_repeatable
            if not can_heal or counted > max_retries:
                raise
            seconds = wait_seconds(tries, failure, paces())
        else:
            if watching is not None:
                watching.answered(answer)
            return answer
        await (asyncio.sleep(seconds) if watching is None else watching.wait(seconds))
    raise AssertionError("unreachable")


def wait_seconds(tries: int, failure: Failure, paces: Sequence[Pace] = ()) -> float:
    """Returns the seconds to wait before the next try.

    A wait that the endpoint asks for is used, up to a minute. If the endpoint answers most requests, the wait is
    about the latency, and grows slowly up to half a second, because waiting longer would not help. Otherwise the wait
    is that of the official SDKs (half a second, doubled each time, at most 8 seconds).
    """
    asked = failure.retry_after_seconds
    latencies = [pace.latency_seconds for pace in paces if pace.latency_seconds is not None and pace.is_healthy]
    if asked is None and latencies and not failure.is_connection:
        first = min(_FIRST_WAIT_SECONDS, max(_SHORTEST_WAIT_SECONDS, *latencies))
        return backoff_seconds(tries, first, max_seconds=_FIRST_WAIT_SECONDS, factor=1.5)
    longest = _LONGEST_BACKOFF_SECONDS if asked is None else _LONGEST_WAIT_SECONDS
    return backoff_seconds(tries, _FIRST_WAIT_SECONDS, max_seconds=longest, asked_seconds=asked)
