"""Where a run lives on disk, and who may write there."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import psutil
from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from nightjar.errors import RunDirectoryError, RunLockedError
from nightjar.packages.names import ENVIRONMENTS_DIR, EnvironmentId, listed_name
from nightjar.runs.jsonl import digest_of, replace_file
from nightjar.runs.recorded import RecordedConfig, RecordedMetadata, first_fault
from nightjar.runs.reserve import Reserve
from nightjar.runs.seal import sealed, unsealed
from nightjar.secrecy import hide_bytes

OUTPUT_DIR = Path("outputs")
_RUN_ID_CHARACTERS = 12
_RESERVED_TIMES = 2


def new_run_id(source: uuid.UUID | None = None) -> str:
    """Returns 12 hex digits: of a flow run's id, so that its retry finds its run again, or random ones."""
    return (source or uuid.uuid4()).hex[-_RUN_ID_CHARACTERS:]


def runs_folder(
    env_id: str,
    model: str,
    output_dir: Path | None = None,
    environments_dir: Path = ENVIRONMENTS_DIR,
) -> Path:
    """Returns the folder that holds all runs of an environment with a model.

    Args:
        env_id: ``name``, ``owner/name`` or ``owner/name@version``.
        model: the model as it was asked for.
        output_dir: None for ``{environments_dir}/{module}/outputs`` where that folder exists, else ``outputs``.
        environments_dir: where environments are developed.
    """
    asked = EnvironmentId.parse(env_id)
    if output_dir is None:
        beside = environments_dir / asked.module / "outputs"
        output_dir = beside if beside.is_dir() else OUTPUT_DIR
    return output_dir / "evals" / f"{asked.name}--{model.replace('/', '--')}"


def runs_folders(folder: Path, env_id: str, model: str) -> list[Path]:
    """Returns the folders beside ``runs_folder`` that hold runs of the same pair, however the environment was written.

    Args:
        folder: what ``runs_folder`` returns.
        env_id, model: as for it.
    """
    end, name = f"--{model.replace('/', '--')}", EnvironmentId.parse(env_id).listed
    beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
    return [path for path in beside if path.name.endswith(end) and listed_name(path.name.removesuffix(end)) == name]


class RunDirectory:
    """A run directory, and the lock on it.

    Used as a context manager it is locked: by this process alone, until it leaves or dies.

    Args:
        path: the folder; made on locking where it is missing.
        patience_seconds: so long locking waits for another process.
    """

    def __init__(self, path: Path, patience_seconds: float = 0.0) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock", timeout=patience_seconds, thread_local=False)
        self._reserve = Reserve(path / "metadata.json")

    @cached_property
    def run_id(self) -> str:
        """The id of the run in it, wherever the folder was moved to; the name of a folder without one."""
        try:
            return self.read_metadata().get("run_id") or self.path.name
        except RunDirectoryError:
            return self.path.name

    @property
    def attempts_path(self) -> Path:
        """The ledger."""
        return self.path / "attempts.jsonl"

    @property
    def results_path(self) -> Path:
        """The score of record."""
        return self.path / "results.jsonl"

    def digests(self) -> dict[str, str]:
        """Returns the digests of ledger and results, by their names.

        Raises:
            RunDirectoryError: one cannot be read.
        """
        return {path.name: digest_of(path) for path in (self.attempts_path, self.results_path)}

    def exists(self) -> bool:
        """Says whether there is a run in the folder."""
        return (self.path / "config.json").is_file()

    def has_metadata(self) -> bool:
        """Says whether the run got as far as to its first metadata."""
        return (self.path / "metadata.json").is_file()

    def is_abandoned(self) -> bool:
        """Says whether the process that wrote there last is gone, as far as this machine knows."""
        try:
            words = Path(self._lock.lock_file).read_text(encoding="utf-8").split()
            process, host = int(words[1]), words[3]
        except (OSError, ValueError, IndexError):
            return False
        return host == socket.gethostname() and not psutil.pid_exists(process)

    def status(self, metadata: Mapping[str, Any]) -> str:
        """Returns how the run stands: what its metadata say, ``crashed`` where that is a run of a dead process."""
        status = str(metadata["status"])
        return "crashed" if status == "running" and self.is_abandoned() else status

    def last_session(self) -> tuple[float, float]:
        """Returns when the last session wrote its metadata, and when it wrote anything last, in seconds since 1970."""
        began = (self.path / "metadata.json").stat().st_mtime
        paths = (self.attempts_path, self.results_path)
        return began, max([began, *(path.stat().st_mtime for path in paths if path.exists())])

    def read_config(self) -> dict[str, Any]:
        """Returns the configuration the run was started with.

        Raises:
            RunDirectoryError: there is none, or it is damaged.
        """
        return self._read("config.json", RecordedConfig)

    def read_metadata(self) -> dict[str, Any]:
        """Returns status and aggregates as of the last replacement.

        Raises:
            RunDirectoryError: there are none, or they are damaged.
        """
        metadata = unsealed(self._read("metadata.json", RecordedMetadata))
        if metadata is None:
            raise RunDirectoryError(f"{self.path / 'metadata.json'} is damaged: somebody has changed it")
        return metadata

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replaces the configuration."""
        replace_file(self.path / "config.json", [_dumped(config)])

    def reserve_room(self) -> None:
        """Takes room for one last replacement of the metadata, so that a disk that fills up leaves a status.

        It is free again when the directory is unlocked.

        Raises:
            RunDirectoryError: the disk is full.
        """
        self._reserve.take()

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replaces status and aggregates; on a full disk in the room that was reserved.

        That grows with them: the last ones are longer than the first.

        Raises:
            RunDirectoryError: they cannot be written; the old ones stay.
        """
        content = _dumped(sealed(orjson.loads(_dumped(metadata))))
        try:
            replace_file(self.path / "metadata.json", [content])
        except RunDirectoryError as full:
            try:
                self._reserve.spend(content)
            except RunDirectoryError:
                raise full from None
        else:
            self._reserve.grow(_RESERVED_TIMES * len(content))

    def __enter__(self) -> Self:
        """Locks the directory.

        Raises:
            RunLockedError: another process writes it; the message says which.
            RunDirectoryError: it cannot be made or written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            Path(self._lock.lock_file).write_text(holder, encoding="utf-8")
        except Timeout:
            holder = Path(self._lock.lock_file).read_text(encoding="utf-8") or "another process"
            raise RunLockedError(
                f"Run {self.run_id!r} is being written by {holder}. Wait for it, or stop it."
            ) from None
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(self.path)!r}: {error.strerror}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Unlocks the directory."""
        self._reserve.give_back()
        self._lock.release()

    def _read(self, name: str, kind: type[BaseModel]) -> dict[str, Any]:
        path = self.path / name
        try:
            content: dict[str, Any] = orjson.loads(path.read_bytes())
            kind.model_validate(content)
        except OSError as error:
            raise RunDirectoryError(f"No run in {str(self.path)!r}: cannot read {name}: {error.strerror}") from error
        except orjson.JSONDecodeError as error:
            raise RunDirectoryError(f"{path} is damaged: {error}") from error
        except ValidationError as error:
            raise RunDirectoryError(f"{path} is damaged: {first_fault(error)}") from error
        return content


def _dumped(content: Mapping[str, Any]) -> bytes:
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    return hide_bytes(orjson.dumps(content, default=str, option=options))
