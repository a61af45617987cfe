"""Bounds what a process may take of the machine's memory while a query runs.

DuckDB's own limit does not count the value that a function is making, so that one ``repeat`` or ``range`` takes all
there is; nor does it know of the Python objects that the rows of an answer become.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STATM = Path("/proc/self/statm")
_DATA_FIELD = 5

_lock = threading.Lock()
_running = 0
_usual: tuple[int, int] = (0, 0)


@contextmanager
def bounded_memory(more_bytes: int) -> Iterator[None]:
    """Refuses memory to this process beyond what it has and so many bytes more, while the body runs.

    Allocations fail then: DuckDB and Python raise errors. The bound is one for all threads, and is raised by every
    further body that begins. It needs Linux; elsewhere there is none.
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
