"""Replaces and locks files that several processes share, and makes temporary folders."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from filelock import FileLock, Timeout

from nightjar.errors import FileLockedError, RunDirectoryError

LOCK_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.02

_PREFIX = "nightjar-scratch-"
_LOCK = ".lock"
_SETTLED_SECONDS = 60.0
"""The age in seconds up to which a folder may not have its lock yet."""


def there_is(path: str | Path) -> bool:
    """Returns whether the path exists. Returns False for a name that no file can have, such as an overlong name."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def cache_folder() -> Path:
    """Returns the cache folder: the value of ``NIGHTJAR_CACHE`` if it is set, otherwise ``~/.cache/nightjar``.

    Example:
        >>> os.environ["NIGHTJAR_CACHE"] = "cache"
        >>> str(cache_folder())
        'cache'
    """
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "nightjar"
    return Path(os.environ.get("NIGHTJAR_CACHE", default)).expanduser()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path to write to. At the end of the block, the new file replaces ``path``, unless the block raises."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: Iterable[bytes], mode: int = 0o666) -> None:
    """Replaces a file atomically and syncs it to disk. If ``RunDirectoryError`` is raised, the old content stays."""
    try:
        with replacing(path) as beside, open(beside, "wb", opener=partial(os.open, mode=mode)) as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunDirectoryError(f"Cannot write {str(path)!r}: {error.strerror}") from error


@contextmanager
def file_lock(
    path: Path, timeout_seconds: float | None = LOCK_TIMEOUT_SECONDS, *, is_shared: bool = False
) -> Iterator[None]:
    """Holds a lock file, at most until the process dies.

    Raises ``FileLockedError`` after the timeout; None waits forever.
    """
    wait = -1 if timeout_seconds is None else timeout_seconds
    lock = FileLock(path, timeout=wait, mode=0o666 if is_shared else -1, thread_local=False)
    try:
        lock.acquire(poll_interval=_POLL_SECONDS)
    except Timeout:
        raise FileLockedError(f"Another process holds the lock {str(path)!r}; waited {wait:.0f} s for it") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    _remove_left_over()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as outer, file_lock(Path(outer, _LOCK), 0):
        folder = Path(outer, "work")
        folder.mkdir()
        yield folder


@cache
def _remove_left_over() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _SETTLED_SECONDS:
                with file_lock(folder / _LOCK, 0):
                    shutil.rmtree(folder)
