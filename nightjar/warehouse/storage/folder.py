"""``Folder``: the segments of a warehouse on a local disk or in a shared folder."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import duckdb

from nightjar.core.files import file_lock, replace_file
from nightjar.core.process_ids import process_host
from nightjar.errors import FileLockedError, NightjarError, WarehouseError
from nightjar.warehouse.location import file_errors
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment
from nightjar.warehouse.storage.store import ADVICE, Fault, Store

SCRATCH_PREFIX = ".writing-"

_SCRATCH_SECONDS = 24 * 3600
"""Nobody writes a segment for longer than a day."""

_PACKING_LOCK = "packing.lock"
_LEFTOVER_AFTER_SECONDS = 60.0
"""A temporary file of this age is considered abandoned."""

_LISTINGS = 10
"""A folder is listed until two listings agree, because one listing may miss a pack and the segments it replaces."""

_log = logging.getLogger(__name__)


class Folder(Store):
    is_remote = False
    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path.absolute())
        self.segments_path = path / "segments"
        self._known: dict[str, Segment] = {}

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        with file_errors(f"Cannot read the warehouse {self}"):  # a name that is too long
            return self.segments_path.is_dir()

    def make(self) -> None:
        with file_errors(f"Cannot create the warehouse {self}"):
            self.segments_path.mkdir(parents=True, exist_ok=True)

    def try_to_write(self) -> None:
        check_place(self.segments_path, str(self))

    def catalog(self) -> Catalog:
        names = self._listed()
        for _ in range(_LISTINGS):
            loaded = {name: self._known.get(name) or self._load(name) for name in names}
            before, names = names, self._listed()
            if names == before:
                break
        self._known = {name: segment for name, segment in loaded.items() if segment is not None}
        return Catalog(self._known)

    def undescribed(self, catalog: Catalog) -> set[str]:
        unknown = ((name, self.segments_path / name) for name in self._listed() - catalog.segments.keys())
        return {name for name, path in unknown if any(path.glob("*.parquet")) and not (path / COMMIT).exists()}

    def file(self, segment_id: str, kind: str) -> str:
        return f"{self.real_path}/{segment_id}/{kind}.parquet"

    def faults(
        self, segments: Iterable[Segment], kinds: Collection[str] = KINDS, *, deep: bool = False
    ) -> Iterator[Fault]:
        for segment in segments:
            for kind in kinds:
                if fault := self._fault(segment, kind, deep=deep):
                    yield fault

    def _fault(self, segment: Segment, kind: str, *, deep: bool) -> Fault | None:
        try:
            with Path(self.file(segment.segment_id, kind)).open("rb") as file:
                if fault := Fault.of_length(segment, kind, file.seek(0, 2)):
                    return fault
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest() if deep else segment.digests[kind]
        except FileNotFoundError:
            return Fault.of(segment, kind, "is missing")
        except OSError as error:
            return Fault.of(segment, kind, f"cannot be read: {error.strerror}", is_damage=False)
        if digest == segment.digests[kind]:
            return None
        what = f"differs from the published file: SHA-256 {digest[:12]}… instead of {segment.digests[kind][:12]}…"
        return Fault.of(segment, kind, what, is_hidden=True)

    @cached_property
    def real_path(self) -> str:
        """The resolved ``segments_path``, which is equal for all its spellings (with ``..``, or through a link)."""
        return os.path.realpath(self.segments_path)

    def command(self, words: str) -> str:
        return f"nightjar warehouse {words} --warehouse {shlex.quote(str(self.path))}"

    def advice(self, segment_id: str, *, is_hidden: bool = False) -> str:  # noqa: ARG002 - the same for all
        return f"Run: {self.command('doctor --deep' if is_hidden else 'doctor')}"

    def unreadable(self, segment_id: str, error: OSError) -> WarehouseError:
        message = f"Cannot read segment {segment_id!r} of the warehouse {self}: {COMMIT}: {error.strerror}"
        if isinstance(error, PermissionError):
            path = shlex.quote(str(self.segments_path / segment_id))
            message += f". Its owner, or root, can let everybody read it: chmod -R a+rX {path}"
        return WarehouseError(message)

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> str:  # noqa: ARG002 - every connection can read files
        return f"{self.real_path}/"

    def read_beside(self, name: str) -> bytes | None:
        with file_errors(f"Cannot read {self.path / name}"), suppress(FileNotFoundError):
            return (self.path / name).read_bytes()
        return None

    def write_beside(self, name: str, content: bytes) -> None:
        replace_file(self.path / name, [content])

    @contextmanager
    def changing_beside(self, name: str) -> Iterator[None]:
        self.make()
        lock = self.path / f"{Path(name).stem}.lock"
        try:
            with file_lock(lock, is_shared=True):
                yield
        except WarehouseError:
            raise
        except (OSError, NightjarError) as error:
            raise WarehouseError(f"Cannot change {self.path / name}: {error}") from error

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        path = self.segments_path / scratch_name()
        try:
            path.mkdir(parents=True)
            with suppress(PermissionError):  # a mounted file system may have one mode for all files
                path.chmod(stat.S_IMODE(self.segments_path.stat().st_mode) & ~stat.S_ISVTX)
        except OSError as error:
            raise WarehouseError(f"Cannot create the warehouse {self.path}: {error}") from error
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def commit(self, segment: Segment, scratch: Path) -> bool:
        target = self.segments_path / segment.segment_id
        try:
            (scratch / COMMIT).write_bytes(segment.dump())
            for file in scratch.iterdir():
                _sync(file)
                file.chmod(0o444)
            _sync(scratch)
            scratch.rename(target)
            _sync(self.segments_path)
        except OSError as error:
            if (target / COMMIT).is_file():
                return not scratch.exists()
            raise WarehouseError(f"Cannot write the warehouse {self.path}: {error.strerror}") from error
        return True

    def remove(self, segment_id: str) -> None:
        """Logs a warning if the files cannot be removed."""
        grave = self.segments_path / scratch_name()
        with file_errors(f"Cannot remove segment {segment_id!r} of {self}"), suppress(FileNotFoundError):
            (self.segments_path / segment_id).rename(grave)
        shutil.rmtree(grave, ignore_errors=True)
        if grave.exists() and not os.access(grave, os.W_OK):
            _log.warning(
                "Segment %r is no longer part of the warehouse, but its files cannot be removed: %s is "
                "another user's. Its owner, or root, can run: %s",
                segment_id, grave, self.command("doctor --fix"),
            )  # fmt: skip

    def filesystem(self) -> tuple[Any, str]:
        import fsspec

        return fsspec.filesystem("file", auto_mkdir=True), self.place

    def remove_leftovers(self) -> None:
        for path in self.leftovers():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def leftovers(self) -> list[Path]:
        folders = [path for path in sorted(self.segments_path.glob(f"{SCRATCH_PREFIX}*")) if not is_alive(path)]
        old = time.time() - _LEFTOVER_AFTER_SECONDS
        return [*folders, *(path for path in sorted(self.path.glob(".*.tmp")) if _changed_at(path) < old)]

    @contextmanager
    def packing_alone(self, timeout_seconds: float = 0) -> Iterator[bool]:
        with ExitStack() as stack:
            is_alone = True
            try:
                stack.enter_context(file_lock(self.path / _PACKING_LOCK, timeout_seconds, is_shared=True))
            except FileLockedError:
                is_alone = False
            except OSError as error:
                raise WarehouseError(f"Cannot lock the warehouse {self}: {error.strerror}") from error
            yield is_alone

    def _listed(self) -> set[str]:
        with (
            file_errors(f"Cannot read the warehouse {self}"),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self.segments_path) as entries,
        ):
            return {entry.name for entry in entries if not entry.name.startswith(".")}
        return set()

    def _load(self, name: str) -> Segment | None:
        try:
            return Segment.load(name, (self.segments_path / name / COMMIT).read_bytes(), self.advice(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self.unreadable(name, error) from error


def check_place(path: Path, warehouse: str) -> None:
    """Raises WarehouseError unless a folder can be written or created; leaves nothing behind."""
    nearest = path
    try:
        nearest = _nearest(path)
        scratch = nearest / scratch_name()
        try:
            scratch.mkdir()
            (scratch / "probe").write_bytes(b"x")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        place = "" if str(nearest) == warehouse else f" ({nearest})"
        raise WarehouseError(f"Cannot write the warehouse {warehouse}: {error.strerror}{place}. {ADVICE}") from error


def scratch_name() -> str:
    return f"{SCRATCH_PREFIX}{os.getpid()}-{uuid.uuid4().hex}-{_machine()}"


def is_alive(path: Path) -> bool:
    """Returns whether the process that made a scratch folder may still run; on another machine, for up to a day."""
    pid, _, rest = path.name.removeprefix(SCRATCH_PREFIX).partition("-")
    try:
        if time.time() - path.stat().st_mtime > _SCRATCH_SECONDS:
            return False
        if rest.partition("-")[2] == _machine():
            os.kill(int(pid), 0)
    except (ValueError, OverflowError, ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        pass
    return True


@cache
def _machine() -> str:
    """Names the scope of process ids: a machine until its restart, or a container."""
    identity = []
    with suppress(OSError):
        identity.append(Path("/proc/sys/kernel/random/boot_id").read_text("utf-8"))
    identity.append(process_host())
    return f"{socket.gethostname()}-{hashlib.sha256(''.join(identity).encode()).hexdigest()[:12]}"


def _nearest(path: Path) -> Path:
    for place in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            place.lstat()
            return place
    return path


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _changed_at(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.lstat().st_mtime
    return float("inf")
