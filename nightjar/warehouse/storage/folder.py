"""``Folder``: the segments of a warehouse on a local disk or in a shared folder."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

from nightjar.errors import WarehouseError
from nightjar.runs.jsonl import replace_file
from nightjar.warehouse.storage.prices import FILE_NAME as PRICES_NAME
from nightjar.warehouse.storage.prices import Price, dump_prices, load_prices
from nightjar.warehouse.storage.scratch import SCRATCH_PREFIX, is_alive, scratch_name
from nightjar.warehouse.storage.segments import COMMIT, Catalog, Segment

_LOCK_NAME = "packing.lock"
_LISTINGS = 10
"""A folder is listed until it is twice the same: one listing may miss a pack and what it was made of."""

_log = logging.getLogger(__name__)


class Folder:
    """A folder with a folder ``segments``.

    Attributes:
        path: of the warehouse.
        segments_path: where the segments are.
    """

    is_remote = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments_path = path / "segments"
        self._known: dict[str, Segment] = {}

    def __str__(self) -> str:
        """Its path, for messages."""
        return str(self.path)

    def exists(self) -> bool:
        """Says whether anything was published here."""
        return self.segments_path.is_dir()

    def make(self) -> None:
        """Makes the folder where there is none.

        Raises:
            WarehouseError: it cannot be made.
        """
        try:
            self.segments_path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WarehouseError(f"Cannot create the warehouse {self.path}: {error.strerror}") from error

    def catalog(self) -> Catalog:
        """Returns the segments that are there now.

        Raises:
            WarehouseError: a ``segment.json`` is damaged, or the folder cannot be read.
        """
        names = self._listed()
        for _ in range(_LISTINGS):
            loaded = {name: self._known.get(name) or self._load(name) for name in names}
            before, names = names, self._listed()
            if names == before:
                break
        self._known = {name: segment for name, segment in loaded.items() if segment is not None}
        return Catalog(self._known)

    def without_description(self, catalog: Catalog) -> set[str]:
        """Returns the names of what would be segments, had they a ``segment.json``: in a folder, they have lost it."""
        unknown = ((name, self.segments_path / name) for name in self._listed() - catalog.segments.keys())
        return {name for name, path in unknown if any(path.glob("*.parquet")) and not (path / COMMIT).exists()}

    def file(self, segment_id: str, kind: str) -> str:
        """Returns where DuckDB finds a file of a segment."""
        return f"{self.real_path}/{segment_id}/{kind}.parquet"

    @cached_property
    def real_path(self) -> str:
        """Of ``segments_path``: the same however the warehouse is named, with ``..`` or through a link."""
        return os.path.realpath(self.segments_path)

    def command(self, words: str) -> str:
        """Returns the line to type for a command of ``nightjar warehouse`` on this one.

        Example:
            >>> Folder(Path("our runs")).command("doctor --fix")
            "nightjar warehouse doctor --fix --warehouse 'our runs'"
        """
        return f"nightjar warehouse {words} --warehouse {shlex.quote(str(self.path))}"

    def advice(self, segment_id: str, *, is_hidden: bool = False) -> str:  # noqa: ARG002 - one for all
        """Says in a sentence what to do about a damaged segment.

        Args:
            segment_id: which.
            is_hidden: whether the damage shows only when all of the file is read.
        """
        return f"Run: {self.command('doctor --deep' if is_hidden else 'doctor')}"

    def unreadable(self, segment_id: str, error: OSError) -> WarehouseError:
        """Returns what to raise where the ``segment.json`` of a segment cannot be read, though it may be sound."""
        message = f"Cannot read segment {segment_id!r} of the warehouse {self}: {COMMIT}: {error.strerror}"
        if isinstance(error, PermissionError):
            path = shlex.quote(str(self.segments_path / segment_id))
            message += f". Its owner, or root, can let everybody read it: chmod -R a+rX {path}"
        return WarehouseError(message)

    def readable(self) -> str:
        """Returns the beginning of all paths that a query may read."""
        return f"{self.real_path}/"

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes a connection able to read the files: a local one is."""

    def prices(self) -> list[Price]:
        """Returns what models cost.

        Raises:
            WarehouseError: the file of prices is damaged.
        """
        try:
            return load_prices((self.path / PRICES_NAME).read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise WarehouseError(f"Cannot read {self.path / PRICES_NAME}: {error.strerror}") from error
        except WarehouseError as error:
            raise WarehouseError(f"{error}. Mend it, or remove the file: {self.path / PRICES_NAME}") from error

    def write_prices(self, prices: Sequence[Price]) -> None:
        """Replaces what models cost."""
        self.path.mkdir(parents=True, exist_ok=True)
        replace_file(self.path / PRICES_NAME, [dump_prices(prices).encode()])

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Makes a folder to write a segment in, and removes it when the segment did not become one.

        Whoever may read or write the folder ``segments`` may read or remove the segment.

        Raises:
            WarehouseError: it cannot be made.
        """
        path = self.segments_path / scratch_name()
        try:
            path.mkdir(parents=True)
            with suppress(PermissionError):  # as a mounted file system may answer that has one mode for all
                path.chmod(stat.S_IMODE(self.segments_path.stat().st_mode) & ~stat.S_ISVTX)
        except OSError as error:
            raise WarehouseError(f"Cannot create the warehouse {self.path}: {error}") from error
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def commit(self, segment: Segment, scratch: Path) -> bool:
        """Makes what is in a scratch folder a segment.

        Returns:
            False where the segment was there already.

        Raises:
            WarehouseError: the disk is full or broken.
        """
        target = self.segments_path / segment.segment_id
        try:
            (scratch / COMMIT).write_bytes(segment.dump())
            _sync(scratch)
            _sync_folder(scratch)
            scratch.rename(target)
            _sync_folder(self.segments_path)
        except OSError as error:
            if (target / COMMIT).is_file():
                return not scratch.exists()
            raise WarehouseError(f"Cannot write the warehouse {self.path}: {error.strerror}") from error
        return True

    def remove(self, segment_id: str) -> None:
        """Removes a segment at once, as far as readers are concerned, then its files; warns where those stay.

        Raises:
            WarehouseError: it cannot be removed.
        """
        grave = self.segments_path / scratch_name()
        try:
            with suppress(FileNotFoundError):
                (self.segments_path / segment_id).rename(grave)
        except OSError as error:
            raise WarehouseError(f"Cannot remove segment {segment_id!r} of {self}: {error.strerror}") from error
        shutil.rmtree(grave, ignore_errors=True)
        if grave.exists() and not os.access(grave, os.W_OK):
            _log.warning(
                "Segment %r is no longer part of the warehouse, but its files cannot be removed: %s is "
                "another user's. Its owner, or root, can run: %s",
                segment_id, grave, self.command("doctor --fix"),
            )  # fmt: skip

    def remove_leftovers(self) -> None:
        """Removes what dead processes left half written."""
        for path in self.leftovers():
            shutil.rmtree(path, ignore_errors=True)

    def leftovers(self) -> list[Path]:
        """Returns folders that a process began to write or to remove and, when it is dead, never will finish."""
        if not self.exists():
            return []
        return [
            path
            for path in sorted(self.segments_path.iterdir())
            if path.name.startswith(SCRATCH_PREFIX) and not is_alive(path)
        ]

    @contextmanager
    def packing_alone(self, timeout_seconds: float = 0) -> Iterator[bool]:
        """Holds the right to pack and to remove segments.

        Args:
            timeout_seconds: how long to wait for another process.

        Yields:
            Whether it could be had.

        Raises:
            WarehouseError: the file that is locked cannot be made.
        """
        lock = FileLock(self.path / _LOCK_NAME, timeout=timeout_seconds, mode=0o666)
        try:
            lock.acquire(poll_interval=0.02)
        except Timeout:
            yield False
            return
        except OSError as error:
            raise WarehouseError(f"Cannot lock the warehouse {self}: {error.strerror}") from error
        try:
            yield True
        finally:
            lock.release()

    def _listed(self) -> set[str]:
        try:
            with os.scandir(self.segments_path) as entries:
                return {entry.name for entry in entries if not entry.name.startswith(".")}
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except OSError as error:
            raise WarehouseError(f"Cannot read the warehouse {self.path}: {error.strerror}") from error

    def _load(self, name: str) -> Segment | None:
        try:
            return Segment.load(name, (self.segments_path / name / COMMIT).read_bytes(), self.advice(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self.unreadable(name, error) from error


def _sync(folder: Path) -> None:
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
        file.chmod(0o444)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
