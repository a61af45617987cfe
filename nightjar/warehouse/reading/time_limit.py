"""``TimeLimit``: how long a question may take."""

from __future__ import annotations

import threading
import time

from nightjar.errors import WarehouseError

QUERY_TIMEOUT_SECONDS = 60.0
"""How long a query may run, unless the caller says otherwise."""


class TimeLimit:
    """When a query is stopped: counts from the first try on, for all tries together.

    Args:
        seconds: more than 0; infinite for no limit.

    Raises:
        WarehouseError: there is no time.
    """

    def __init__(self, seconds: float = QUERY_TIMEOUT_SECONDS) -> None:
        if not seconds > 0:
            raise WarehouseError(f"A query needs time: expected more than 0 seconds, found {seconds:g}.")
        self._seconds = seconds
        self._ends_at: float | None = None

    def left(self) -> float:
        """Returns how many seconds are left.

        Raises:
            WarehouseError: none.
        """
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + self._seconds
        if self._ends_at <= now:
            raise self.over()
        return min(self._ends_at - now, threading.TIMEOUT_MAX)

    def over(self) -> WarehouseError:
        """Returns what to raise when the time is over."""
        return WarehouseError(f"The query was stopped after {self._seconds:g} s. Narrow it, or take it apart.")
