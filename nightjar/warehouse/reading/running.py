"""Runs a query in the process that asks: for the owner, for Nightjar's own, and for warehouses in its memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import duckdb

from nightjar.warehouse.reading.time_limit import TimeLimit

_AGAIN_SECONDS = 0.05
"""How long after an interrupt the next one comes: one that comes before the query has begun is lost."""

Answer = TypeVar("Answer")


def run_stoppable(work: Callable[[], Answer], connection: duckdb.DuckDBPyConnection, limit: TimeLimit) -> Answer:
    """Returns what the work gives, or raises what it raises; Ctrl-C stops it, and is raised when it has ended.

    DuckDB itself looks for Ctrl-C only between its tasks, and often does not come to that: the query runs in a thread
    of its own, and the thread that was asked waits for it where Python can be interrupted.

    Args:
        work: a query on the connection; is called in another thread.
        connection: nothing else uses it meanwhile.
        limit: when it is interrupted; DuckDB looks for that between its steps alone.

    Raises:
        KeyboardInterrupt: Ctrl-C was typed meanwhile.
        WarehouseError: the time is over.
    """
    seconds = limit.left()
    with ThreadPoolExecutor(1, "nightjar-query") as pool:
        answer = pool.submit(work)
        try:
            return answer.result(seconds)
        except TimeoutError:
            if answer.done():
                raise
            raise limit.over() from None
        finally:
            while not answer.done():
                connection.interrupt()
                wait([answer], _AGAIN_SECONDS)
