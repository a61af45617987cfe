"""The lock of the process that supervises, in Nightjar's home: the operating system frees it when that dies.

Its process id stands in the lock file, so that ``stop`` can end it and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from nightjar.errors import ServiceError
from nightjar.home import home


@contextmanager
def supervisor_lock() -> Iterator[None]:
    """Makes this process the one that supervises.

    Raises:
        ServiceError: another one does.
    """
    lock = FileLock(_lock_file(), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        check_nobody_supervises()
        raise
    _lock_file().write_text(str(os.getpid()), encoding="utf-8")
    try:
        yield
    finally:
        _lock_file().write_text("", encoding="utf-8")
        lock.release()


def supervisor_pid() -> int | None:
    """Returns the process that holds the lock; None where nobody does."""
    try:
        with FileLock(_lock_file(), timeout=0):
            return None
    except Timeout:
        text = _lock_file().read_text(encoding="utf-8")
        return int(text) if text else None


def check_nobody_supervises() -> None:
    """Refuses to start a second one.

    Raises:
        ServiceError: a process supervises already.
    """
    if (pid := supervisor_pid()) is not None:
        raise ServiceError(f"Already running, as process {pid}. Stop it with: nightjar down")


def _lock_file() -> Path:
    return home() / "up.lock"
