"""Folders for the time of a piece of work. Those that a killed process has left behind, the next one removes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

_PREFIX = "nightjar-scratch-"
_LOCK = ".lock"
_SETTLED_SECONDS = 60.0
"""So long a folder may lack its lock, as it is being made."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Gives a folder of this process that is removed when the block ends, in whichever thread."""
    _remove_left_over()
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX) as outer,
        FileLock(Path(outer, _LOCK), timeout=0, thread_local=False),
    ):
        folder = Path(outer, "work")
        folder.mkdir()
        yield folder


@cache
def _remove_left_over() -> None:
    """Removes the folders whose lock is free: the operating system frees it when the process dies. Once a process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, Timeout):
            if time.time() - folder.stat().st_mtime > _SETTLED_SECONDS:
                with FileLock(folder / _LOCK, timeout=0):
                    shutil.rmtree(folder)
