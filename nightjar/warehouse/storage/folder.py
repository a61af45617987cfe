"""``Folder``: the segments of a warehouse on a local disk or in a shared folder."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from nightjar.errors import NightjarError, WarehouseError
from nightjar.warehouse.storage.scratch import SCRATCH_PREFIX, is_alive, scratch_name
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment
from nightjar.warehouse.storage.store import Fault, Store
from nightjar.warehouse.storage.writability import check_place

_PACKING_LOCK = "packing.lock"
_LOCK_TIMEOUT_SECONDS = 30.0
_LEFTOVER_AFTER_SECONDS = 60.0
"""How old a file is that was to replace another, and does not any more."""

_LISTINGS = 10
"""A folder is listed until it is twice the same: one listing may miss a pack and what it was made of."""

_log = logging.getLogger(__name__)


class Folder(Store):
    """A folder with a folder ``segments``; its methods are told about in ``Store``.

    Attributes:
        path: of the warehouse.
        segments_path: where the segments are.
    """

    is_remote = False
    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path.absolute())
        self.segments_path = path / "segments"
        self._known: dict[str, Segment] = {}

    def __str__(self) -> str:
        """Its path, for messages."""
        return str(self.path)

    def exists(self) -> bool:
        """Says whether it has a folder ``segments``."""
        try:
            return self.segments_path.is_dir()
        except OSError as error:  # a name that is too long
            raise WarehouseError(f"Cannot read the warehouse {self}: {error.strerror}") from error

    def make(self) -> None:
        """Makes the folder ``segments``."""
        try:
            self.segments_path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WarehouseError(f"Cannot create the warehouse {self.path}: {error.strerror}") from error

    def try_to_write(self) -> None:
        """Makes a file in the folder, or in the nearest above it that is there, and removes it."""
        check_place(self.segments_path, str(self))

    def catalog(self) -> Catalog:
        """Lists the folder until nothing changes meanwhile."""
        names = self._listed()
        for _ in range(_LISTINGS):
            loaded = {name: self._known.get(name) or self._load(name) for name in names}
            before, names = names, self._listed()
            if names == before:
                break
        self._known = {name: segment for name, segment in loaded.items() if segment is not None}
        return Catalog(self._known)

    def undescribed(self, catalog: Catalog) -> set[str]:
        """Returns the folders with Parquet files alone."""
        unknown = ((name, self.segments_path / name) for name in self._listed() - catalog.segments.keys())
        return {name for name, path in unknown if any(path.glob("*.parquet")) and not (path / COMMIT).exists()}

    def file(self, segment_id: str, kind: str) -> str:
        """Returns the path of a file."""
        return f"{self.real_path}/{segment_id}/{kind}.parquet"

    def faults(
        self, segments: Iterable[Segment], kinds: Collection[str] = KINDS, *, deep: bool = False
    ) -> Iterator[Fault]:
        """Looks at lengths, and when deep at all of every file."""
        for segment in segments:
            for kind in kinds:
                if fault := self._fault(segment, kind, deep=deep):
                    yield fault

    def _fault(self, segment: Segment, kind: str, *, deep: bool) -> Fault | None:
        try:
            with Path(self.file(segment.segment_id, kind)).open("rb") as file:
                length, expected = file.seek(0, 2), segment.sizes[kind]
                if length != expected:
                    return Fault.of(segment, kind, f"has {length:,} bytes instead of {expected:,}")
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest() if deep else segment.digests[kind]
        except FileNotFoundError:
            return Fault.of(segment, kind, "is missing")
        except OSError as error:
            return Fault.of(segment, kind, f"cannot be read: {error.strerror}", is_damage=False)
        if digest == segment.digests[kind]:
            return None
        what = f"is not as it was written: SHA-256 {digest[:12]}… instead of {segment.digests[kind][:12]}…"
        return Fault.of(segment, kind, what, is_hidden=True)

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
        """Names the doctor."""
        return f"Run: {self.command('doctor --deep' if is_hidden else 'doctor')}"

    def doubt(self) -> str:
        """Names the doctor."""
        return f"That may be damage. Run: {self.command('doctor --deep')}"

    def unreadable(self, segment_id: str, error: OSError) -> WarehouseError:
        """Returns what to raise where the ``segment.json`` of a segment cannot be read, though it may be sound."""
        message = f"Cannot read segment {segment_id!r} of the warehouse {self}: {COMMIT}: {error.strerror}"
        if isinstance(error, PermissionError):
            path = shlex.quote(str(self.segments_path / segment_id))
            message += f". Its owner, or root, can let everybody read it: chmod -R a+rX {path}"
        return WarehouseError(message)

    def readable(self) -> str:
        """Returns the path of the folder ``segments``."""
        return f"{self.real_path}/"

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Does nothing: every connection reads files."""

    def read_beside(self, name: str) -> bytes | None:
        """Reads a file of the folder."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WarehouseError(f"Cannot read {self.path / name}: {error.strerror}") from error

    def write_beside(self, name: str, content: bytes) -> None:
        """Replaces a file of the folder."""
        from nightjar.runs.jsonl import replace_file

        replace_file(self.path / name, [content])

    @contextmanager
    def changing_beside(self, name: str) -> Iterator[None]:
        """Locks a file."""
        self.make()
        lock = self.path / f"{Path(name).stem}.lock"
        try:
            with FileLock(lock, timeout=_LOCK_TIMEOUT_SECONDS, mode=0o666):
                yield
        except WarehouseError:
            raise
        except (OSError, NightjarError) as error:
            raise WarehouseError(f"Cannot change {self.path / name}: {error}") from error

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Makes a folder beside the segments; whoever may read or write these may read or remove it."""
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
        """Puts the folder among the others by a rename."""
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
        """Removes a segment, and warns where its files stay."""
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

    def filesystem(self) -> tuple[Any, str]:
        """Returns that of this machine."""
        import fsspec

        return fsspec.filesystem("file", auto_mkdir=True), self.place

    def remove_leftovers(self) -> None:
        """Removes what dead processes left half written."""
        for path in self.leftovers():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def leftovers(self) -> list[Path]:
        """Returns what processes began to write or to remove that are dead."""
        folders = [path for path in sorted(self.segments_path.glob(f"{SCRATCH_PREFIX}*")) if not is_alive(path)]
        old = time.time() - _LEFTOVER_AFTER_SECONDS
        return [*folders, *(path for path in sorted(self.path.glob(".*.tmp")) if _changed_at(path) < old)]

    @contextmanager
    def packing_alone(self, timeout_seconds: float = 0) -> Iterator[bool]:
        """Locks a file, and waits for another process; raises WarehouseError where the file cannot be made."""
        lock = FileLock(self.path / _PACKING_LOCK, timeout=timeout_seconds, mode=0o666)
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


def _changed_at(path: Path) -> float:
    """Returns when a file was written, in Unix time; infinity where it is gone meanwhile."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")
