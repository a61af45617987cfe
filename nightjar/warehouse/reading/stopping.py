"""Lets Ctrl-C stop a query at once.

DuckDB itself looks for it only between its tasks, and often does not come to that: the query runs in a thread of its
own, and the thread that was asked waits for it where Python can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Answer = TypeVar("Answer")

_AGAIN_SECONDS = 0.05


def run_stoppable(work: Callable[[], Answer], stop: Callable[[], None]) -> Answer:
    """Returns what the work gives, or raises what it raises; Ctrl-C stops it, and is raised when it has ended.

    Args:
        work: is called in another thread.
        stop: makes the work end soon, such as ``connection.interrupt``.

    Raises:
        KeyboardInterrupt: Ctrl-C was typed meanwhile.
    """
    with ThreadPoolExecutor(1, "nightjar-query") as pool:
        answer = pool.submit(work)
        try:
            return answer.result()
        finally:
            _stop(answer, stop)


def _stop(answer: Future[Answer], stop: Callable[[], None]) -> None:
    """Ends the work; a single call may come before the query began, and would be lost."""
    while not answer.done():
        stop()
        wait([answer], _AGAIN_SECONDS)
