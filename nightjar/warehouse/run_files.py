"""Looks at the files of a run directory before DuckDB reads them: ``docs/run-directory.md``."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from nightjar.errors import WarehouseError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunMetadata:
    """What publishing itself needs of ``metadata.json``; the columns are DuckDB's to read."""

    path: Path
    text: str
    run_id: str
    state_columns: list[str]
    has_results: bool
    """Whether a rollout was scored or failed, by the run's own account."""


@dataclass(frozen=True)
class ResultLines:
    """A file of whole lines, and the length of the longest."""

    path: Path
    longest_bytes: int


def read_metadata(run_dir: Path) -> RunMetadata:
    """Reads ``metadata.json``.

    Raises:
        WarehouseError: the file is missing, is not a JSON object, or names no run.
    """
    path = run_dir / "metadata.json"
    try:
        text = path.read_text("utf-8")
        metadata = json.loads(text)
    except (OSError, ValueError) as error:
        raise WarehouseError(f"Cannot read {path}: {error}") from error
    if not isinstance(metadata, dict) or not isinstance(metadata.get("run_id"), str):
        raise WarehouseError(f"Cannot read {path}: it names no run_id.")
    return RunMetadata(
        path=path,
        text=text,
        run_id=metadata["run_id"],
        state_columns=metadata.get("state_columns") or [],
        has_results=bool(metadata.get("scored") or metadata.get("failed")),
    )


def whole_results(run_dir: Path, metadata: RunMetadata, scratch: Path) -> ResultLines:
    """Finds the whole lines of ``results.jsonl``.

    A line that a crash tore is left out, with a warning: the file is then copied without it.

    Args:
        run_dir: the run directory.
        metadata: what its ``metadata.json`` says.
        scratch: a folder for the copy.

    Raises:
        WarehouseError: the file is missing although the run has results, or cannot be read.
    """
    path = run_dir / "results.jsonl"
    if not path.exists() and not metadata.has_results:
        path = scratch / path.name
        path.touch()
    try:
        longest, torn = _measure(path)
        return ResultLines(_without_tail(path, torn, scratch) if torn else path, longest)
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error}") from error


def _measure(path: Path) -> tuple[int, int]:
    """The lengths of the longest line and of a torn last line, 0 when it is whole."""
    longest, last = 0, b"\n"
    with path.open("rb") as file:
        for last in file:
            longest = max(longest, len(last))
    is_torn = not last.endswith(b"\n") and not _is_json(last)
    return longest, len(last) if is_torn else 0


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _without_tail(path: Path, tail_bytes: int, scratch: Path) -> Path:
    _log.warning("The last line of %s is torn and left out; resume the run to repair it.", path)
    copy = Path(shutil.copyfile(path, scratch / path.name))
    with copy.open("rb+") as file:
        file.truncate(copy.stat().st_size - tail_bytes)
    return copy
