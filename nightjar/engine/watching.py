"""``RequestWatch``: an engine's eye on the requests of its rollouts, and of the judges that score them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nightjar.calling.places import Places
from nightjar.clients.failures import Failure
from nightjar.engine.budget import Budget
from nightjar.engine.guard import FailureGuard
from nightjar.engine.progress import Progress
from nightjar.rollout.usage import usage_counts

_WAITING_PER_PLACE = 4
_OUTAGE_SECONDS = 300.0


class RequestWatch:
    """Counts requests, stops them when the run is to stop, and says how those that failed wait.

    Args:
        guard: says when enough has failed.
        progress: counters to keep up to date.
        budget: what may be spent; None for no limit.
        model: which one is asked, for its prices; empty where the answers say.
        places: of the rollouts that ask: who waits for another try gives its place to one that has not begun, as long
            as no more than four wait for each place. None where they keep them.
    """

    def __init__(
        self,
        guard: FailureGuard,
        progress: Progress,
        budget: Budget | None = None,
        model: str = "",
        places: Places | None = None,
    ) -> None:
        self._guard = guard
        self._progress = progress
        self._budget = budget
        self._model = model
        self._places = places
        self._answered_at: float | None = None
        self._waiting = 0

    def check(self) -> None:
        """Raises ``RunAbortedError`` or ``BudgetSpentError`` where nothing is to be asked any more."""
        self._guard.check()
        if self._budget is not None:
            self._budget.check()

    def answered(self, answer: Any) -> None:
        """Takes note of an answer, and of what it cost."""
        self._answered_at = time.monotonic()
        self._progress.requests += 1
        self._guard.answered()
        given, written = usage_counts(getattr(answer, "usage", None))
        self._progress.input_tokens += given
        self._progress.output_tokens += written
        if self._budget is not None:
            self._budget.add(given, written, self._model or getattr(answer, "model", ""))

    def failed(self, failure: Failure, started_at: float) -> bool:
        """Takes note of a failure; says whether it is excused: the endpoint has answered before, and is away now.

        Raises:
            RunAbortedError: it was one too many.
        """
        self._progress.requests += 1
        self._progress.refused += failure.is_overload
        self._progress.last_failure = failure.message
        self._guard.request_failed(failure)
        if not failure.is_connection:
            self._answered_at = time.monotonic()
        if not failure.is_connection or self._answered_at is None:
            return False
        return self._answered_at < started_at < self._answered_at + _OUTAGE_SECONDS

    async def wait(self, seconds: float) -> None:
        """Waits before a request, or an attempt, is made again."""
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
