"""Stops a run in which every request fails alike, instead of failing ten thousand rollouts."""

from __future__ import annotations

import time

from nightjar.clients.failures import Failure
from nightjar.errors import RunAbortedError

_BEFORE_SUCCESS = 5
_BEFORE_ANSWER = 20
_PATIENCE_SECONDS = 60.0


class FailureGuard:
    """Counts requests that fail before the first is answered, and then rollouts in a row that fail alike.

    Five stop the run where nobody is there, or the key is refused; twenty where all is answered with errors; and those
    that are only too many are waited for a minute. Of rollouts, five stop it while none has succeeded yet (an unknown
    model), many more after that (a key revoked, a server gone). Errors that may be an example's count once an example,
    and only while they say the same, so that a few odd examples cannot stop a run.

    Args:
        has_succeeded: something has succeeded before.
        limit_after_success: how many stop the run then.
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
        """Raises the error that stopped the run, if one did."""
        if self._abort is not None:
            raise self._abort

    def succeeded(self) -> None:
        """Takes note of a finished rollout."""
        self.has_succeeded = True
        self._alike.clear()

    def answered(self) -> None:
        """Takes note of a request that was answered."""
        self._has_answered = True

    def request_failed(self, failure: Failure) -> None:
        """Takes note of a request that failed.

        Raises:
            RunAbortedError: it was one too many without an answer.
        """
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
        """Begins to count anew."""
        self._abort = None
        self._tries = 0
        self._alike.clear()

    def failed(self, failure: Failure, example_id: int) -> None:
        """Takes note of a rollout of an example that failed.

        Raises:
            RunAbortedError: it was one too many; the provider's message is in it.
        """
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
                f"Stopped: {len(self._alike)} rollouts in a row failed alike. {failure.message}",
                is_outage=failure.is_connection and self.has_succeeded,
            )
        self.check()
