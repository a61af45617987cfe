"""``Reserve``: room on a disk that is kept for one last replacement of a file, for when the disk is full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from nightjar.errors import RunDirectoryError
from nightjar.runs.jsonl import replace_file

_BYTES = 1 << 14


class Reserve:
    """A file of random bytes beside another file.

    It is written over in place and renamed, which needs no room on most file systems; those that write every change to
    a new place (btrfs, ZFS) may refuse it.

    Args:
        path: the file to be replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.reserve")

    def take(self) -> None:
        """Takes the room.

        Raises:
            RunDirectoryError: there is none.
        """
        replace_file(self._beside, [os.urandom(_BYTES)])

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
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(self._path)!r}: {error.strerror}") from error

    def give_back(self) -> None:
        """Frees the room."""
        with suppress(OSError):
            self._beside.unlink(missing_ok=True)
