"""``Reserve``: room on a disk that is kept for one last replacement of a file, for when the disk is full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from nightjar.errors import RunDirectoryError
from nightjar.runs.jsonl import replace_file

_SMALLEST_BYTES = 1 << 14


class Reserve:
    """A file of zeros beside another file.

    It is written over in place and renamed, which needs no room on most file systems; those that write every change to
    a new place (btrfs, ZFS) may refuse it.

    Args:
        path: the file to be replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.reserve")
        self._bytes = 0

    def take(self, at_least_bytes: int = _SMALLEST_BYTES) -> None:
        """Takes the room, 16 KiB or more.

        Raises:
            RunDirectoryError: there is none; what was taken before stays.
        """
        size = max(at_least_bytes, _SMALLEST_BYTES)
        replace_file(self._beside, [bytes(size)])
        self._bytes = size

    def grow(self, at_least_bytes: int) -> None:
        """Takes more room where less was taken, as far as there is more."""
        if 0 < self._bytes < at_least_bytes:
            with suppress(RunDirectoryError):
                self.take(at_least_bytes)

    def spend(self, content: bytes) -> None:
        """Replaces the file atomically by means of the room.

        Raises:
            RunDirectoryError: there is no room, or not enough; the old content stays.
        """
        try:
            with self._beside.open("r+b") as file:
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            self._beside.replace(self._path)
            self._bytes = 0
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(self._path)!r}: {error.strerror}") from error

    def give_back(self) -> None:
        """Frees the room."""
        self._bytes = 0
        with suppress(OSError):
            self._beside.unlink(missing_ok=True)
