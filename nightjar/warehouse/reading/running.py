"""Runs a query within limits: of time, of memory, and until Ctrl-C."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import duckdb

from nightjar.errors import WarehouseError

QUERY_TIMEOUT_SECONDS = 60.0
"""How long a query may run, unless the caller says otherwise."""

_AGAIN_SECONDS = 0.05
"""How long after an interrupt the next one comes: one that comes before the query has begun is lost."""

_STATM = Path("/proc/self/statm")
_DATA_FIELD = 5

_lock = threading.Lock()
_running = 0
_usual: tuple[int, int] = (0, 0)

Answer = TypeVar("Answer")


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


def run_stoppable(work: Callable[[], Answer], connection: duckdb.DuckDBPyConnection, limit: TimeLimit) -> Answer:
    """Returns what the work gives, or raises what it raises; Ctrl-C stops it, and is raised when it has ended.

    DuckDB itself looks for Ctrl-C only between its tasks, and often does not come to that: the query runs in a thread
    of its own, and the thread that was asked waits for it where Python can be interrupted.

    Args:
        work: a query on the connection; is called in another thread.
        connection: nothing else uses it meanwhile.
        limit: when it is stopped.

    Raises:
        KeyboardInterrupt: Ctrl-C was typed meanwhile.
        WarehouseError: the time is over.
    """
    seconds = limit.left()
    with ThreadPoolExecutor(1, "nightjar-query") as pool:
        answer = pool.submit(_whole, work, connection)
        try:
            return answer.result(seconds)
        except (TimeoutError, duckdb.InterruptException) as error:
            if isinstance(error, TimeoutError) and answer.done():
                raise
            raise limit.over() from error
        finally:
            while not answer.done():
                connection.interrupt()
                wait([answer], _AGAIN_SECONDS)


def _whole(work: Callable[[], Answer], connection: duckdb.DuckDBPyConnection) -> Answer:
    """Returns what the work gives; when it fails, nothing goes on behind its back.

    DuckDB's threads make the next rows of an answer while the last ones are taken, also of one that nobody takes any
    more, until its connection is asked something else.
    """
    try:
        return work()
    except BaseException:
        with suppress(duckdb.Error, MemoryError, RuntimeError):
            connection.execute("SELECT 1")
        raise


@contextmanager
def bounded_memory(more_bytes: int) -> Iterator[None]:
    """Refuses memory to this process beyond what it has and so many bytes more, while the body runs.

    DuckDB's own limit does not count the value that a function is making, nor the Python objects that the rows of an
    answer become. Without this bound ``SELECT repeat('x', 4_000_000_000)`` takes 8.1 GB, ``range(1_000_000_000)`` more
    than 14 GB; with it both are refused at 0.1 GB. Allocations fail then: DuckDB and Python raise errors. The bound is
    one for all threads, and is raised by every other body that begins. It needs Linux; elsewhere there is none.
    """
    is_bounded = _enter(more_bytes)
    try:
        yield
    finally:
        if is_bounded:
            _leave()


def _enter(more_bytes: int) -> bool:
    global _running, _usual  # noqa: PLW0603 - the limit is the process's
    if not _STATM.exists():
        return False
    import resource

    with _lock:
        if _running == 0:
            _usual = resource.getrlimit(resource.RLIMIT_DATA)
        _running += 1
        taken = int(_STATM.read_text().split()[_DATA_FIELD]) * os.sysconf("SC_PAGE_SIZE")
        limits = [limit for limit in _usual if limit != resource.RLIM_INFINITY]
        _set_soft(min([taken + more_bytes, *limits]))
    return True


def _leave() -> None:
    global _running  # noqa: PLW0603 - the limit is the process's
    with _lock:
        _running -= 1
        if _running == 0:
            _set_soft(_usual[0])


def _set_soft(soft: int) -> None:
    import resource

    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, _usual[1]))
