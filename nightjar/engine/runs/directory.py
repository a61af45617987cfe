"""The run directory: its location, files, format version, digest and lock."""

from __future__ import annotations

import os
import shlex
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import orjson
from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from nightjar.core.environment_id import ENVIRONMENTS_DIR, EnvironmentId, listed_name
from nightjar.core.files import replace_file
from nightjar.core.live_processes import is_running
from nightjar.core.process_ids import process_host
from nightjar.core.secrecy import hide_bytes
from nightjar.engine.runs.jsonl import DIGEST_BYTES, Line, check_strict, digest_of
from nightjar.engine.runs.recorded import (
    RecordedAttempt,
    RecordedConfig,
    RecordedMetadata,
    RecordedResult,
    first_fault,
    read_lines,
)
from nightjar.errors import NewerRunDirectoryError, RunDirectoryError, RunLockedError

FORMAT = 2
"""The version of the written format, and the newest version that can be read (docs/reference/run-directory.md)."""
_DIGEST_FIELD = "digest"
_SMALLEST_RESERVE_BYTES = 1 << 14
OUTPUT_DIR = Path("outputs")
_RUN_ID_CHARACTERS = 12
# The last metadata are longer than the first metadata: they have a summary, and perhaps an error.
_RESERVED_TIMES = 2


def format_of(content: Mapping[str, Any]) -> int:
    found = content.get("format")
    return found if isinstance(found, int) else 1


def check_format(content: object, path: Path) -> None:
    if isinstance(content, dict) and (found := format_of(content)) > FORMAT:
        raise NewerRunDirectoryError(str(path.parent), found, FORMAT)


def of_two_runs(path: Path, metadata: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Returns advice if the files in a run directory belong to two runs. Otherwise returns None."""
    first, second = metadata.get("run_id"), config.get("run_id")
    if first is None or second is None or first == second:
        return None
    return (
        f"In {str(path)!r}, metadata.json is of run {first!r}, and config.json of run {second!r}. Restore the file of "
        "the right run, or remove metadata.json if it is the wrong file"
    )


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    return {**content, _DIGEST_FIELD: _digest(content)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the content without its digest, or None if the digest is wrong. Content without a digest is accepted."""
    rest = {name: value for name, value in content.items() if name != _DIGEST_FIELD}
    return rest if content.get(_DIGEST_FIELD) in {None, _digest(rest)} else None


def _digest(content: Mapping[str, Any]) -> str:
    return blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=DIGEST_BYTES).hexdigest()


class Reserve:
    """A file of zeros, which reserves disk space to replace a file at the end. On btrfs and ZFS, this may not work."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.reserve")

    def take(self, size_bytes: int = _SMALLEST_RESERVE_BYTES) -> None:
        replace_file(self._beside, [bytes(size_bytes)])

    def grow(self, at_least_bytes: int) -> None:
        with suppress(OSError, RunDirectoryError):
            if self._beside.stat().st_size < at_least_bytes:
                self.take(at_least_bytes)

    def spend(self, content: bytes) -> None:
        with self._beside.open("r+b") as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._beside.replace(self._path)

    def give_back(self) -> None:
        with suppress(OSError):
            self._beside.unlink(missing_ok=True)


def new_run_id(source: uuid.UUID | None = None) -> str:
    """Returns 12 hex digits of a flow run's id, or 12 random hex digits.

    With the flow run's id, a retry of the flow run finds its run.
    """
    return (source or uuid.uuid4()).hex[-_RUN_ID_CHARACTERS:]


def runs_folder(
    env_id: str, model: str, output_dir: Path | None = None, environments_dir: Path = ENVIRONMENTS_DIR
) -> Path:
    """Returns the folder of an environment's runs with a model, in the environment's own ``outputs`` if it exists."""
    asked = EnvironmentId.parse(env_id)
    if output_dir is None:
        beside = environments_dir / asked.module / "outputs"
        output_dir = beside if beside.is_dir() else OUTPUT_DIR
    return output_dir / "evals" / f"{asked.name}--{model.replace('/', '--')}"


def runs_folders(folder: Path, env_id: str, model: str) -> list[Path]:
    """Returns the folders beside ``runs_folder`` with runs of this environment (its id in any spelling) and model."""
    end, name = f"--{model.replace('/', '--')}", EnvironmentId.parse(env_id).listed
    beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
    return [path for path in beside if path.name.endswith(end) and listed_name(path.name.removesuffix(end)) == name]


class RunDirectory:
    """A run directory. As a context manager, it waits up to ``patience_seconds`` for the lock and holds the lock."""

    def __init__(self, path: Path, patience_seconds: float = 0.0) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock", timeout=patience_seconds, thread_local=False)
        self._reserve = Reserve(path / "metadata.json")

    @cached_property
    def run_id(self) -> str:
        """The id of the run, even after the folder was moved. If no id is stored, it is the folder's name."""
        return self.stored_id() or self.path.name

    def stored_id(self) -> str | None:
        """Returns the id in the metadata, or else in ``config.json`` (if the run was killed early), or else None."""
        for read in (self.read_metadata, self.read_config):
            with suppress(RunDirectoryError):
                if found := read().get("run_id"):
                    return str(found)
        return None

    @property
    def attempts_path(self) -> Path:
        return self.path / "attempts.jsonl"

    @property
    def results_path(self) -> Path:
        return self.path / "results.jsonl"

    def attempts(self) -> Iterator[Line]:
        """Yields the lines of the ledger. Raises ``RunDirectoryError`` for the first damaged line.

        If the run has ended, its whole file is checked before the first line.
        """
        return self._lines(self.attempts_path, RecordedAttempt)

    def results(self) -> Iterator[Line]:
        return self._lines(self.results_path, RecordedResult)

    def _lines(self, path: Path, kind: type[RecordedAttempt | RecordedResult]) -> Iterator[Line]:
        with self.telling_to_repair():
            is_unchanged = self.is_unchanged(path)
            lines = read_lines(path, kind, is_guarded=not is_unchanged)
            if is_unchanged is False:
                deque(lines, maxlen=0)  # names the changed line, if its checksum is known
                raise RunDirectoryError(f"{path} was changed after the run had ended")
            yield from lines

    @contextmanager
    def telling_to_repair(self) -> Iterator[None]:
        try:
            yield
        except RunDirectoryError as damage:
            raise RunDirectoryError(
                f"{damage}. To set the damaged lines aside, so that a resume repeats their rollouts: "
                f"nightjar eval repair {shlex.quote(str(self.path))}"
            ) from damage

    def is_unchanged(self, path: Path) -> bool | None:
        """Returns whether a file is as the run left it at its end. Returns None if the run has not ended."""
        written = self._written_digest(path.name)
        if written is None:
            return None
        is_same = path.exists() and digest_of(path) == written
        return is_same if self._written_digest(path.name) == written else None  # another process has resumed the run

    def _written_digest(self, name: str) -> str | None:
        with suppress(RunDirectoryError):
            return (self.read_metadata().get("digests") or {}).get(name)
        return None

    def reopen(self) -> None:
        """Marks an ended run as in progress, because its files are about to change."""
        metadata = self.read_metadata()
        if metadata.get("digests"):
            self.write_metadata({**metadata, "status": "running", "digests": None})

    def digests(self) -> dict[str, str]:
        return {path.name: digest_of(path) for path in (self.attempts_path, self.results_path)}

    def exists(self) -> bool:
        return (self.path / "config.json").is_file()

    def has_metadata(self) -> bool:
        return (self.path / "metadata.json").is_file()

    def is_abandoned(self) -> bool:
        """Returns whether the last writer was a process of this machine or container that no longer exists."""
        try:
            words = Path(self._lock.lock_file).read_text(encoding="utf-8").split()
            process, host = int(words[1]), words[3]
        except (OSError, ValueError, IndexError):
            return False
        return host == process_host() and not is_running(process)

    def status(self, metadata: Mapping[str, Any]) -> str:
        status = str(metadata["status"])
        return "crashed" if status == "running" and self.is_abandoned() else status

    def last_session(self) -> tuple[float, float]:
        """Returns the Unix times at which the last session first wrote its metadata and last wrote a file."""
        began = (self.path / "metadata.json").stat().st_mtime
        paths = (self.attempts_path, self.results_path)
        return began, max([began, *(path.stat().st_mtime for path in paths if path.exists())])

    def read_config(self) -> dict[str, Any]:
        return self._read("config.json", RecordedConfig)

    def read_metadata(self) -> dict[str, Any]:
        metadata = unsealed(self._read("metadata.json", RecordedMetadata))
        if metadata is None:
            raise RunDirectoryError(f"{self.path / 'metadata.json'} is damaged: it was changed after it was written")
        config: dict[str, Any] = {}
        with suppress(RunDirectoryError):
            config = self.read_config()
        if fault := of_two_runs(self.path, metadata, config):
            raise RunDirectoryError(fault)
        return metadata

    def write_config(self, config: Mapping[str, Any]) -> None:
        replace_file(self.path / "config.json", [_dumped(config)])

    def reserve_room(self) -> None:
        """Reserves disk space until the directory is unlocked, so that a run on a full disk can store its status."""
        self._reserve.take()

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        content = _dumped(sealed(orjson.loads(_dumped(metadata))))
        try:
            replace_file(self.path / "metadata.json", [content])
        except RunDirectoryError as full:
            try:
                self._reserve.spend(content)
            except OSError:
                raise full from full.__cause__
        else:
            self._reserve.grow(_RESERVED_TIMES * len(content))

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            holder = f"process {os.getpid()} on {process_host()}"
            Path(self._lock.lock_file).write_text(holder, encoding="utf-8")
        except Timeout:
            holder = Path(self._lock.lock_file).read_text(encoding="utf-8") or "another process"
            raise RunLockedError(
                f"Run {self.run_id!r} is being written by {holder}. Wait for the end of this process, or stop it."
            ) from None
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(self.path)!r}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._reserve.give_back()
        self._lock.release()

    def _read(self, name: str, kind: type[BaseModel]) -> dict[str, Any]:
        path = self.path / name
        try:
            text = path.read_bytes()
            content: dict[str, Any] = orjson.loads(text)
            check_strict(content, text)
            check_format(content, path)
            kind.model_validate(content)
        except OSError as error:
            raise RunDirectoryError(f"No run in {str(self.path)!r}: cannot read {name}: {error.strerror}") from error
        except orjson.JSONDecodeError as error:
            raise RunDirectoryError(f"{path} is damaged: {error}") from error
        except ValidationError as error:
            raise RunDirectoryError(f"{path} is damaged: {first_fault(error)}") from error
        except ValueError as error:
            raise RunDirectoryError(f"{path} is damaged: {error}") from error
        return content


def _dumped(content: Mapping[str, Any]) -> bytes:
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    return hide_bytes(orjson.dumps(content, default=str, option=options))


def run_directories(output_dir: Path | None = None) -> Iterator[RunDirectory]:
    """Yields the run directories in a folder. None means ``./outputs`` and the local environments' ``outputs``."""
    folders = [output_dir] if output_dir else [OUTPUT_DIR, *ENVIRONMENTS_DIR.glob("*/outputs")]
    for folder in folders:
        for metadata in folder.glob("evals/*/*/metadata.json"):
            yield RunDirectory(metadata.parent)
