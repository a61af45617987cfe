"""Requests of rollouts: made again after errors that can heal, and watched by whoever runs the rollouts."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from nightjar.calling.backoff import backoff_seconds
from nightjar.clients.failures import Failure, classify
from nightjar.errors import RunError

T = TypeVar("T")

_FIRST_WAIT_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 8.0
_LONGEST_WAIT_SECONDS = 60.0


class Watch(Protocol):
    """Who runs rollouts, and is told of their requests."""

    def check(self) -> None:
        """Raises ``RunError`` where nothing is to be asked any more."""

    def answered(self, answer: Any) -> None:
        """Takes note of an answer."""

    def failed(self, failure: Failure, started_at: float) -> bool:
        """Takes note of the failure of a try that began then; says whether it is excused. May raise ``RunError``."""

    async def wait(self, seconds: float) -> None:
        """Waits before a request is made again."""


watch: ContextVar[Watch | None] = ContextVar("watch", default=None)
"""Who watches the requests that are made in this context."""


async def repeat(request: Callable[[], Awaitable[T]], max_retries: int, *, is_last_resort: bool = False) -> T:
    """Makes a request, and makes it again after errors that can heal; waits as long as the endpoint asks, with a limit.

    The waits are those of the official SDKs: half a second, doubled each time, 8 seconds at the most.

    Args:
        request: makes it once.
        max_retries: how often it is made again at the most.
        is_last_resort: make it again, too, after what another attempt at a rollout could mend: there will be none.

    Raises:
        Exception: what the last try raised.
        RunError: the run is stopped.
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
    """Returns how long to wait after so many tries: what was asked for, or the backoff, and some jitter."""
    asked = failure.retry_after_seconds
    longest = _LONGEST_BACKOFF_SECONDS if asked is None else _LONGEST_WAIT_SECONDS
    return backoff_seconds(tries, _FIRST_WAIT_SECONDS, max_seconds=longest, asked_seconds=asked)
