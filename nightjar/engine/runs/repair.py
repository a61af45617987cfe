"""Sets damaged lines of a run directory aside, and removes scores of older code, so that a resume repeats both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from nightjar.core.files import replace_file
from nightjar.core.rollout.records import Key
from nightjar.engine.runs.directory import RunDirectory
from nightjar.engine.runs.identity import store_id
from nightjar.engine.runs.jsonl import RawLine, checksums_of, drop_checksums, parse_line, read_checksums, whole_lines
from nightjar.engine.runs.recorded import RecordedAttempt, RecordedResult, check_restorable, read_line
from nightjar.errors import NewerRunDirectoryError, RunDirectoryError, RunError

_CODE = ("env_hash", "scoring_hash")
_NO_CHECKSUM = b""  # so that a changed file whose lines have no checksums is set aside as a whole


def repair(directory: RunDirectory) -> list[str]:
    """Moves damaged metadata, and damaged lines of ledger and results, to ``*.damaged`` files. Returns the faults."""
    config = directory.read_config()
    with directory:
        faults = _metadata_aside(directory, config)
        files = (directory.attempts_path, _read_attempt), (directory.results_path, _read_result)
        to_check = [(path, read, directory.is_unchanged(path)) for path, read in files]
        if any(is_unchanged is False for _, _, is_unchanged in to_check):
            directory.reopen()
        for path, read, is_unchanged in to_check:
            faults += _set_aside(path, read, is_unchanged=is_unchanged)
        return faults


def _metadata_aside(directory: RunDirectory, config: Mapping[str, Any]) -> list[str]:
    path = directory.path / "metadata.json"
    try:
        if path.exists():
            directory.read_metadata()
    except NewerRunDirectoryError:
        raise
    except RunDirectoryError as damage:
        run_id, config_id = _id_in(path), config.get("run_id")
        if None not in {run_id, config_id} and run_id != config_id:
            raise  # it is unknown which of the two files is the run's
        if run_id and not config_id:
            store_id(directory, run_id)
        path.replace(path.with_suffix(".damaged"))
        return [str(damage)]
    return []


def _id_in(path: Path) -> str | None:
    with suppress(OSError, ValueError):
        content = orjson.loads(path.read_bytes())
        return str(content["run_id"]) if isinstance(content, dict) and content.get("run_id") else None
    return None


def _set_aside(path: Path, read: Callable[[RawLine, Path], object], *, is_unchanged: bool | None) -> list[str]:
    faults, is_moved, known = {}, is_unchanged is False, {_NO_CHECKSUM, *read_checksums(path)}
    for raw in whole_lines(path, is_guarded=not is_unchanged):
        try:
            read(raw._replace(checksums=known if raw.checksums or is_unchanged is False else ()), path)
        except RunDirectoryError as damage:
            faults[raw.number] = str(damage)
        is_moved |= raw.is_changed
    if faults:
        damaged = path.with_suffix(".damaged")
        try:
            with damaged.open("ab") as file:
                file.writelines(raw.text for raw in whole_lines(path) if raw.number in faults)
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(damaged)!r}: {error.strerror}") from error
        drop_checksums(path)
        replace_file(path, (raw.text for raw in whole_lines(path) if raw.number not in faults))
    elif is_moved:
        drop_checksums(path)
        return [f"{checksums_of(path)}: lines of {path.name} were moved or removed. The other lines are kept"]
    return list(faults.values())


def _read_result(raw: RawLine, path: Path) -> None:
    read_line(raw, path, RecordedResult)


def _read_attempt(raw: RawLine, path: Path) -> None:
    line = read_line(raw, path, RecordedAttempt)
    if line.row["error"] is None:
        check_restorable(line, path)


def is_of_other_code(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    pairs = ((before.get(name), now.get(name)) for name in _CODE)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def take_back_scores(directory: RunDirectory) -> frozenset[Key]:
    """Removes the scored results, so that a resume scores them again. Returns their keys.

    Raises ``RunError`` if a resume could not score one of them.
    """
    path = directory.results_path
    scored = {line.key for line in directory.results() if line.row["error"] is None}
    if scored:
        _check_kept(directory, scored)
        directory.reopen()
        drop_checksums(path)
        replace_file(path, (raw.text for raw in whole_lines(path) if parse_line(raw.text, path, raw.number)["error"]))
    return frozenset(scored)


def _check_kept(directory: RunDirectory, scored: Collection[Key]) -> None:
    unsaved: dict[Key, list[str]] = {}
    for line in directory.attempts():
        if line.key in scored and line.row["error"] is None:
            with directory.telling_to_repair():
                check_restorable(line, directory.attempts_path)
            unsaved[line.key] = line.row["state"].get("unsaved") or []
    lost = sorted({f"state[{name!r}]" for names in unsaved.values() for name in names})
    if lost or len(unsaved) < len(scored):
        raise RunError(
            f"Cannot resume {str(directory.path)!r}: its environment's code has changed, and its rollouts cannot be "
            f"scored again without {', '.join(lost) or 'their attempts'}. Restore the earlier code, or score the "
            f"rollouts as a new run: nightjar eval rescore {directory.run_id}"
        )
