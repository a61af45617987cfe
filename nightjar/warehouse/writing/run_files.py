"""Checks and measures the files of a run directory (docs/reference/run-directory.md) before DuckDB reads them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from nightjar.engine.runs import RunDirectory, summarize_rows
from nightjar.engine.runs.directory import check_format, of_two_runs, unsealed
from nightjar.engine.runs.jsonl import DIGEST_BYTES, check_strict
from nightjar.engine.runs.recorded import RecordedResult, read_lines
from nightjar.errors import NewerRunDirectoryError, RunDirectoryError, WarehouseError
from nightjar.warehouse.storage.segments import make_version

_log = logging.getLogger(__name__)

_DEFAULT_THRESHOLD = 0.5
_NOT_CONTENT = ("published_at", "cost", "format", "sources")
"""Metadata that are not part of a version's content: a publish, an upgrade or another file format changes them."""


@dataclass(frozen=True)
class JsonFile:
    """A file of complete lines for DuckDB, with the hash of its content. In an empty file, ``last_line`` is empty."""

    path: Path
    longest_bytes: int
    lines: int
    digest: bytes
    last_line: bytes


@dataclass(frozen=True)
class RunFiles:
    """The files of a run directory, without torn lines. For an imported run, ``config`` is None.

    The metadata have aggregates even if the run was killed before it wrote them.
    """

    run_dir: Path
    metadata: dict[str, Any]
    config: Any
    results: JsonFile
    attempts: JsonFile
    version: str

    @property
    def run_id(self) -> str:
        return str(self.metadata["run_id"])

    @property
    def pass_threshold(self) -> float:
        return _pass_threshold(self.metadata)

    @property
    def has_one_line_per_rollout(self) -> bool:
        """Whether the results surely have no second line of a rollout: the journal counted the lines at the end."""
        counted = sum(self.metadata.get(count) or 0 for count in ("scored", "failed"))
        return "digests" in self.metadata and self.results.lines == counted


def read_run(run_dir: Path, scratch: Path) -> RunFiles:
    """Reads the small files and measures the large files. Raises WarehouseError if a file is damaged.

    Copies a file that grows, or has a torn last line, to ``scratch`` without a torn line.
    """
    metadata = _read_metadata(run_dir / "metadata.json")
    has_results = bool(metadata.get("scored") or metadata.get("failed"))
    is_growing = metadata.get("status") == "running"
    results = _whole(run_dir / "results.jsonl", scratch, is_required=has_results, is_growing=is_growing)
    attempts = _whole(run_dir / "attempts.jsonl", scratch, is_required=False, is_growing=is_growing)
    digests = metadata.get("digests")
    is_changed = isinstance(digests, dict) and any(
        digests.get(file.path.name) not in {None, file.digest.hex()} for file in (results, attempts)
    )
    if is_growing or is_changed:
        _check_lines(RunDirectory(run_dir))
    if is_changed:
        raise WarehouseError(f"{run_dir} changed while it was read. Publish the run again when it has ended.")
    config = _read_json(run_dir / "config.json") if (run_dir / "config.json").exists() else None
    if isinstance(config, dict) and (fault := of_two_runs(run_dir, metadata, config)):
        raise WarehouseError(fault)
    version = _version(metadata, config, results, attempts)
    if "scored" not in metadata:
        metadata |= _aggregates(metadata, results.path)
    return RunFiles(run_dir, metadata, config, results, attempts, version)


def _check_lines(directory: RunDirectory) -> None:
    try:
        directory.read_metadata()
        deque(chain(directory.results(), directory.attempts()), maxlen=0)
    except RunDirectoryError as damage:
        raise WarehouseError(str(damage)) from damage


def gathered(file: JsonFile, fields: Collection[str], names: Collection[str], scratch: Path) -> JsonFile:
    """Returns a copy of a file. In each line, moves the values called ``names`` into one object, ``state``.

    The values called ``fields`` stay in the line. Lines that are not objects stay unchanged.
    """
    copy, beside = scratch / file.path.name, scratch / f"{file.path.name}.gathered"
    longest = 0
    with file.path.open("rb") as lines, beside.open("wb") as written:
        for line in lines:
            longest = max(longest, written.write(_gathered_line(line, fields, names)))
    beside.replace(copy)
    return replace(file, path=copy, longest_bytes=longest)


def _gathered_line(line: bytes, fields: Collection[str], names: Collection[str]) -> bytes:
    try:
        row = json.loads(line)  # not orjson, which reads neither NaN nor long integers
    except ValueError:
        return line
    if not isinstance(row, dict):
        return line
    kept = {name: value for name, value in row.items() if name in fields}
    return json.dumps({**kept, "state": {name: row.get(name) for name in names}}).encode() + b"\n"


def _read_metadata(path: Path) -> dict[str, Any]:
    metadata = _read_json(path)
    if not isinstance(metadata, dict) or not isinstance(metadata.get("run_id"), str) or not metadata["run_id"]:
        raise WarehouseError(f"Cannot read {path}: it has no run_id.")
    if (whole := unsealed(metadata)) is None:
        raise WarehouseError(f"Cannot publish {path.parent}: metadata.json is damaged: it was edited.")
    return whole


def _read_json(path: Path) -> Any:
    try:
        text = path.read_bytes()
        content = orjson.loads(text)
        check_strict(content, text)
        check_format(content, path)
    except (OSError, ValueError) as error:
        raise WarehouseError(f"Cannot read {path}: {error}") from error
    except NewerRunDirectoryError as newer:
        raise WarehouseError(str(newer)) from newer
    return content


def _whole(path: Path, scratch: Path, *, is_required: bool, is_growing: bool) -> JsonFile:
    copy = scratch / path.name
    try:
        if not path.exists() and not is_required:
            copy.touch()
            return _measured(copy)[0]
        file, whole_bytes, torn_bytes = _measured(path)
        if torn_bytes and not is_growing:
            _log.warning("The last line of %s is torn and left out. To repair the file, resume the run.", path)
        if not torn_bytes and not is_growing:
            return file
        shutil.copyfile(path, copy)
        os.truncate(copy, whole_bytes)
        return replace(file, path=copy)
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error}") from error


def _measured(path: Path) -> tuple[JsonFile, int, int]:
    """Returns the complete lines of a file, their bytes, and the bytes of a torn last line (0 if it is complete)."""
    longest, lines, size, before, last = 0, 0, 0, b"", b""
    content = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with path.open("rb") as file:
        for line in file:
            content.update(last)
            size += len(last)
            longest, lines, before, last = max(longest, len(line)), lines + 1, last, line
    if last and not last.endswith(b"\n") and not _is_json(last):
        return JsonFile(path, longest, lines - 1, content.digest(), before), size, len(last)
    content.update(last)
    return JsonFile(path, longest, lines, content.digest(), last), size + len(last), 0


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except ValueError:
        return False
    return True


def _version(metadata: dict[str, Any], config: Any, results: JsonFile, attempts: JsonFile) -> str:
    if isinstance(config, dict):
        config = {name: value for name, value in config.items() if name not in {"format", "run_id"}}
    settings = b"" if config is None else orjson.dumps(config)
    described = {name: value for name, value in metadata.items() if name not in _NOT_CONTENT}
    content = hashlib.blake2b(orjson.dumps(described, option=orjson.OPT_SORT_KEYS), digest_size=DIGEST_BYTES)
    for part in (settings, results.digest, attempts.digest):
        content.update(part)
    return make_version(
        attempts=results.lines if metadata.get("original") else attempts.lines,
        newest_attempt=_finished_at(attempts.last_line),
        ended=_moment(metadata.get("finished_at") or metadata.get("started_at")),
        published=time.time(),
        digest=content.hexdigest(),
    )


def _finished_at(last_attempt: bytes) -> float:
    """Returns the Unix time of the ledger's last line, which is the newest attempt; 0 for an empty ledger."""
    with suppress(ValueError, TypeError, KeyError):
        return float(orjson.loads(last_attempt)["finished_at"])
    return 0.0


def _moment(text: object) -> float:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _aggregates(metadata: dict[str, Any], results: Path) -> dict[str, Any]:
    """Returns the aggregates over the last line of each rollout."""
    try:
        last = {line.key: line.number for line in read_lines(results, RecordedResult)}
        summary = summarize_rows(
            (line.row for line in read_lines(results, RecordedResult) if last[line.key] == line.number),
            rollouts=metadata["rollouts"],
            rollouts_per_example=metadata["rollouts_per_example"],
            pass_threshold=_pass_threshold(metadata),
        )
    except (RunDirectoryError, KeyError) as error:
        raise WarehouseError(f"Cannot read {results}: {error}") from error
    return summary.metadata()


def _pass_threshold(metadata: dict[str, Any]) -> float:
    threshold = metadata.get("pass_threshold")
    return _DEFAULT_THRESHOLD if threshold is None else float(threshold)
