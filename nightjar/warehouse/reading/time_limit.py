"""``TimeLimit``: how long a query may run, however often it is tried."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import TIMEOUT_MAX, Event, Thread

import duckdb

from nightjar.errors import WarehouseError

QUERY_TIMEOUT_SECONDS = 60.0
"""How long a query may run, unless the caller says otherwise."""

_AGAIN_SECONDS = 0.05
"""How long after an interrupt the next one comes: one that comes before the query has begun is lost."""


class TimeLimit:
    """Stops a query when its time is over; counts from the first try on, for all tries together.

    Args:
        seconds: more than 0.

    Raises:
        WarehouseError: there is no time.
    """

    def __init__(self, seconds: float = QUERY_TIMEOUT_SECONDS) -> None:
        if not seconds > 0:
            raise WarehouseError(f"A query needs time: expected more than 0 seconds, found {seconds:g}.")
        self._seconds = seconds
        self._ends_at: float | None = None

    @contextmanager
    def stopping(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Stops what runs on the connection when the time is over before the body has ended.

        Raises:
            WarehouseError: it was stopped, or the time was over before.
        """
        if self._left() <= 0:
            raise self._over()
        ended = Event()
        watch = Thread(target=self._watch, args=(connection, ended), name="nightjar-timeout", daemon=True)
        watch.start()
        try:
            yield
        except duckdb.InterruptException as error:
            raise self._over() from error
        finally:
            ended.set()
            watch.join()

    def _watch(self, connection: duckdb.DuckDBPyConnection, ended: Event) -> None:
        pause = min(max(0.0, self._left()), TIMEOUT_MAX)
        while not ended.wait(pause):
            connection.interrupt()
            pause = _AGAIN_SECONDS

    def _left(self) -> float:
        """How many seconds are left."""
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + self._seconds
        return self._ends_at - now

    def _over(self) -> WarehouseError:
        return WarehouseError(f"The query was stopped after {self._seconds:g} s. Narrow it, or take it apart.")
