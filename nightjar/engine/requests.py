"""Watches the requests of an engine's rollouts and judges, and stops a run whose requests keep failing."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from nightjar.clients.failures import Failure
from nightjar.core.calling.limits import Places
from nightjar.core.rollout.usage import usage_counts
from nightjar.core.text import counted
from nightjar.engine.limits import Budget
from nightjar.engine.progress import Progress
from nightjar.errors import RunAbortedError

logger = logging.getLogger(__name__)

_BEFORE_SUCCESS = 5
_BEFORE_ANSWER = 20
_PATIENCE_SECONDS = 60.0
_WAITING_PER_PLACE = 4
# If the endpoint responded before, its failures count only after this time.
_OUTAGE_SECONDS = 300.0


class FailureGuard:
    """Counts failures and stops the run after too many.

    Before the first response, the run stops after five connection errors or refused keys, after twenty other errors, or
    after a minute of overload. The guard also counts failed rollouts in a row. The run stops after five of them if no
    rollout has succeeded yet (after twenty if the errors are neither permanent nor connection errors), and after
    ``limit_after_success`` of them otherwise. An error that an example may have caused counts once per example, and
    only while the message stays the same.
    """

    def __init__(self, has_succeeded: bool = False, limit_after_success: int = 50) -> None:
        self.has_succeeded = has_succeeded
        self._limit_after_success = limit_after_success
        self._has_answered = has_succeeded
        self._tries = 0
        self._first_try_at = 0.0
        self._alike: set[object] = set()
        self._message = ""
        self._abort: RunAbortedError | None = None

    def check(self) -> None:
        if self._abort is not None:
            raise self._abort

    def succeeded(self) -> None:
        self.has_succeeded = True
        self._alike.clear()

    def answered(self) -> None:
        self._has_answered = True

    def request_failed(self, failure: Failure) -> None:
        if self._has_answered or not (failure.is_repeatable or failure.is_refusal):
            return
        now = time.monotonic()
        self._first_try_at = self._first_try_at or now
        self._tries += 1
        is_clear = failure.is_connection or failure.is_refusal
        is_early = failure.is_overload and now - self._first_try_at < _PATIENCE_SECONDS
        if self._tries >= (_BEFORE_SUCCESS if is_clear else _BEFORE_ANSWER) and not is_early:
            self._abort = RunAbortedError(f"Stopped: the first {self._tries} requests failed. {failure.message}")
        self.check()

    def forget(self) -> None:
        self._abort = None
        self._tries = 0
        self._alike.clear()

    def failed(self, failure: Failure, example_id: int) -> None:
        if not (failure.is_permanent or failure.is_retryable):
            return
        concerns_all = failure.is_connection or failure.is_refusal
        if not concerns_all and failure.message != self._message:
            self._alike.clear()
        self._message = failure.message
        self._alike.add(object() if concerns_all else example_id)
        first = _BEFORE_SUCCESS if failure.is_permanent or failure.is_connection else _BEFORE_ANSWER
        limit = self._limit_after_success if self.has_succeeded else first
        if len(self._alike) >= limit:
            self._abort = RunAbortedError(
                f"Stopped: {counted(len(self._alike), 'rollout')} in a row failed in the same way. {failure.message}",
                is_outage=failure.is_connection and self.has_succeeded,
            )
        self.check()


class RequestWatch:
    """Counts requests, and lets failed requests wait for their retry.

    A failed request frees its place while it waits. For each place, at most four requests wait in this way.
    In the first ``patience_seconds``, the run waits for an endpoint that has not answered in this session.
    """

    def __init__(
        self,
        guard: FailureGuard,
        progress: Progress,
        budget: Budget | None = None,
        model: str = "",
        places: Places | None = None,
        patience_seconds: float = 0.0,
    ) -> None:
        self._guard = guard
        self._progress = progress
        self._budget = budget
        self._model = model
        self._places = places
        self._patience_seconds = patience_seconds
        self._answered_at: float | None = None
        self._waiting = 0

    def check(self) -> None:
        self._guard.check()
        if self._budget is not None:
            self._budget.check()

    def answered(self, answer: Any) -> None:
        self._answered_at = time.monotonic()
        self._progress.waits_until = None
        self._progress.requests += 1
        self._guard.answered()
        given, written = usage_counts(getattr(answer, "usage", None))
        self._progress.input_tokens += given
        self._progress.output_tokens += written
        if self._budget is not None:
            self._budget.add(given, written, self._model or getattr(answer, "model", ""))

    def failed(self, failure: Failure, started_at: float, *, has_retries: bool) -> bool:
        """Records a failed request.

        Returns True if the failure does not count, because the run waits for an endpoint that is not up yet. With
        ``has_retries``, a failure does not count either while the endpoint is down for a short time.
        """
        self._count(failure)
        if (has_retries or failure.is_unavailable) and self._is_waited_for(failure):
            return True
        self._guard.request_failed(failure)
        if not failure.is_unavailable:
            self._answered_at = time.monotonic()
        if not (has_retries and failure.is_unavailable) or self._answered_at is None:
            return False
        return self._answered_at < started_at < self._answered_at + _OUTAGE_SECONDS

    def _is_waited_for(self, failure: Failure) -> bool:
        if not (self._patience_seconds and failure.is_repeatable and self._answered_at is None):
            return False
        if self._progress.waits_until is None:
            self._progress.waits_until = time.time() + self._patience_seconds
            minutes = self._patience_seconds / 60
            logger.warning("The endpoint does not answer yet, waiting %g minutes: %s", minutes, failure.message)
        return time.time() < self._progress.waits_until

    def moved(self, failure: Failure) -> None:
        self._count(failure)
        self._progress.retries += 1

    def _count(self, failure: Failure) -> None:
        self._progress.requests += 1
        self._progress.refused += failure.is_overload
        self._progress.last_failure = failure.message

    async def wait(self, seconds: float) -> None:
        self._progress.retries += 1
        if self._places is None or self._waiting >= _WAITING_PER_PLACE * self._places.ceiling:
            await asyncio.sleep(seconds)
            return
        self._waiting += 1
        try:
            async with self._places.given_back():
                await asyncio.sleep(seconds)
        finally:
            self._waiting -= 1
