"""Stops a run in which every request fails alike, instead of failing ten thousand rollouts."""

from __future__ import annotations

from nightjar.engine.failures import Failure
from nightjar.errors import RunAbortedError

_BEFORE_SUCCESS = 5
_AFTER_SUCCESS = 50


class FailureGuard:
    """Counts rollouts in a row that the endpoint refuses for good, or does not answer at all.

    Five stop the run while nothing has succeeded yet (a wrong key, an unknown model, a wrong address), fifty
    after that (a key revoked, a server gone), so that a few odd examples cannot stop a run.
    """

    def __init__(self) -> None:
        self.has_succeeded = False
        self._in_a_row = 0
        self._abort: RunAbortedError | None = None

    def check(self) -> None:
        """Raises the error that stopped the run, if one did."""
        if self._abort is not None:
            raise self._abort

    def succeeded(self) -> None:
        """Takes note of a finished rollout."""
        self.has_succeeded = True
        self._in_a_row = 0

    def failed(self, failure: Failure) -> None:
        """Takes note of a rollout that failed for good.

        Raises:
            RunAbortedError: it was one too many; the provider's message is in it.
        """
        if not (failure.is_permanent or failure.is_connection):
            return
        self._in_a_row += 1
        limit = _AFTER_SUCCESS if self.has_succeeded else _BEFORE_SUCCESS
        if self._in_a_row >= limit:
            self._abort = RunAbortedError(
                f"Stopped: {self._in_a_row} rollouts in a row failed alike. {failure.message}"
            )
        self.check()
