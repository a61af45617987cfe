"""Stops a run in which every request fails alike, instead of failing ten thousand rollouts."""

from __future__ import annotations

from nightjar.clients.failures import Failure
from nightjar.errors import RunAbortedError

_BEFORE_SUCCESS = 5


class FailureGuard:
    """Counts rollouts in a row that the endpoint refuses for good, or does not answer at all.

    Five stop the run while nothing has succeeded yet (a wrong key, an unknown model, a wrong address), many more are
    needed after that (a key revoked, a server gone). Other refusals than those of the key count once an example, and
    only while they say the same, so that a few odd examples cannot stop a run.

    Args:
        has_succeeded: something has succeeded before.
        limit_after_success: how many stop the run then.
    """

    def __init__(self, has_succeeded: bool = False, limit_after_success: int = 50) -> None:
        self.has_succeeded = has_succeeded
        self._limit_after_success = limit_after_success
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

    def forget(self) -> None:
        """Begins to count anew."""
        self._abort = None
        self._alike.clear()

    def failed(self, failure: Failure, example_id: int) -> None:
        """Takes note of a rollout of an example that failed for good.

        Raises:
            RunAbortedError: it was one too many; the provider's message is in it.
        """
        if not (failure.is_permanent or failure.is_connection):
            return
        concerns_all = failure.is_connection or failure.is_refusal
        if not concerns_all and failure.message != self._message:
            self._alike.clear()
        self._message = failure.message
        self._alike.add(object() if concerns_all else example_id)
        limit = self._limit_after_success if self.has_succeeded else _BEFORE_SUCCESS
        if len(self._alike) >= limit:
            self._abort = RunAbortedError(
                f"Stopped: {len(self._alike)} rollouts in a row failed alike. {failure.message}",
                is_outage=failure.is_connection and self.has_succeeded,
            )
        self.check()
