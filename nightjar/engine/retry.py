"""Another attempt at a rollout, or at a late request of it alone: when, and how long to wait before."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from nightjar.calling import backoff_seconds
from nightjar.clients.failures import Failure

T = TypeVar("T")
Request: TypeAlias = Callable[[], Awaitable[Any]]

repeater: ContextVar[Callable[[Request], Awaitable[Any]]] = ContextVar("repeater")
"""Set by the engine for each rollout: makes a request, and makes it again after errors that can heal."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounded, exponential, with jitter; what the endpoint asks for is honoured up to a limit.

    Attributes:
        max_retries: further attempts at a rollout after the first; 0 turns retries off.
        initial_seconds: wait before the first retry; doubled for each further one.
        max_seconds: the longest wait, also where ``Retry-After`` asks for more.
        outage_seconds: with retries on, an endpoint that has answered before and stops answering is waited for
            this long, whatever ``max_retries`` says.
    """

    max_retries: int = 0
    initial_seconds: float = 1.0
    max_seconds: float = 60.0
    outage_seconds: float = 300.0

    def wait_seconds(self, attempts: int, failure: Failure) -> float:
        """Returns how long to wait after so many attempts: what was asked for, or the backoff, and some jitter."""
        asked = failure.retry_after_seconds
        return backoff_seconds(attempts, self.initial_seconds, max_seconds=self.max_seconds, asked_seconds=asked)


class Retrier:
    """Repeats attempts as a policy says; one for all rollouts of a run, so that it knows of outages.

    Args:
        policy: when to try again.
        on_retry: called before each wait for another attempt.
    """

    def __init__(self, policy: RetryPolicy, on_retry: Callable[[], None]) -> None:
        self._policy = policy
        self._on_retry = on_retry
        self._answered_at: float | None = None

    async def run(self, attempt: Callable[[], Awaitable[T]], failure_of: Callable[[T], Failure | None]) -> T:
        """Returns the result of the first attempt that succeeds or fails for good, or of the last.

        Args:
            attempt: tries once.
            failure_of: how a result of it failed; None for a success.
        """
        counted = 0
        for attempts in itertools.count(1):
            started_at = time.monotonic()
            result = await attempt()
            failure = failure_of(result)
            if failure is None or not failure.is_connection:
                self._answered_at = time.monotonic()
            if failure is None or not failure.is_retryable:
                break
            counted += not self._is_outage(failure, started_at)
            if counted > self._policy.max_retries:
                break
            self._on_retry()
            await asyncio.sleep(self._policy.wait_seconds(attempts, failure))
        return result

    def _is_outage(self, failure: Failure, started_at: float) -> bool:
        """Says whether the endpoint has answered before, and nobody any more since this attempt started."""
        if not (self._policy.max_retries and failure.is_connection and self._answered_at):
            return False
        return self._answered_at < started_at < self._answered_at + self._policy.outage_seconds


async def repeat(request: Callable[[], Awaitable[T]]) -> T:
    """Makes a request as often as the engine of this rollout allows; once where there is no engine.

    Raises:
        Exception: what the last try raised.
    """
    again = repeater.get(None)
    return await (request() if again is None else again(request))
