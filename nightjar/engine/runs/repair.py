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
from nightjar.engine.runs.jsonl import Line, parse_line, scan_lines, whole_lines
from nightjar.engine.runs.recorded import RecordedAttempt, RecordedResult, check_restorable, checked
from nightjar.errors import NewerRunDirectoryError, RunDirectoryError, RunError

_CODE = ("env_hash", "scoring_hash")


def repair(directory: RunDirectory) -> list[str]:
    """Moves damaged metadata, and damaged lines of ledger and results, to ``*.damaged`` files. Returns the faults."""
    config = directory.read_config()
    with directory:
        return [
            *_metadata_aside(directory, config),
            *_set_aside(directory.attempts_path, _check_attempt),
            *_set_aside(directory.results_path, lambda line, path: checked(line, path, RecordedResult)),
        ]


def _metadata_aside(directory: RunDirectory, config: Mapping[str, Any]) -> list[str]:
    path = directory.path / "metadata.json"
    try:
        if path.exists():
            directory.read_metadata()
    except NewerRunDirectoryError:
        raise
    except RunDirectoryError as damage:
        if not config.get("run_id") and (run_id := _id_in(path)):
            store_id(directory, run_id)
        path.replace(path.with_suffix(".damaged"))
        return [str(damage)]
    return []


def _id_in(path: Path) -> str | None:
    with suppress(OSError, ValueError):
        content = orjson.loads(path.read_bytes())
        return str(content["run_id"]) if isinstance(content, dict) and content.get("run_id") else None
    return None


def _set_aside(path: Path, check: Callable[[Line, Path], object]) -> list[str]:
    faults = {}
    for number, place, line in whole_lines(path):
        try:
            check(Line(number, place, parse_line(line, path, number)), path)
        except RunDirectoryError as damage:
            faults[number] = str(damage)
    if faults:
        damaged = path.with_suffix(".damaged")
        try:
            with damaged.open("ab") as file:
                file.writelines(line for number, _, line in whole_lines(path) if number in faults)
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(damaged)!r}: {error.strerror}") from error
        replace_file(path, (line for number, _, line in whole_lines(path) if number not in faults))
    return list(faults.values())


def _check_attempt(line: Line, path: Path) -> None:
    checked(line, path, RecordedAttempt)
    if line.row["error"] is None:
        check_restorable(line, path)


def is_of_other_code(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    pairs = ((before.get(name), now.get(name)) for name in _CODE)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def take_back_scores(directory: RunDirectory) -> frozenset[Key]:
    """Removes the scored results, for a resume. Returns their keys. ``RunError`` if one could not be scored again."""
    path = directory.results_path
    scored = {checked(line, path, RecordedResult) for line in scan_lines(path) if line.row["error"] is None}
    if scored:
        _check_kept(directory, scored)
        replace_file(path, (line for number, _, line in whole_lines(path) if parse_line(line, path, number)["error"]))
    return frozenset(scored)


def _check_kept(directory: RunDirectory, scored: Collection[Key]) -> None:
    unsaved: dict[Key, list[str]] = {}
    for line in scan_lines(directory.attempts_path):
        key = checked(line, directory.attempts_path, RecordedAttempt)
        if key in scored and line.row["error"] is None:
            check_restorable(line, directory.attempts_path)
            unsaved[key] = line.row["state"].get("unsaved") or []
    lost = sorted({f"state[{name!r}]" for names in unsaved.values() for name in names})
    if lost or len(unsaved) < len(scored):
        raise RunError(
            f"Cannot resume {str(directory.path)!r}: its environment's code has changed, and its rollouts cannot be "
            f"scored again without {', '.join(lost) or 'their attempts'}. Restore the earlier code, or score the "
            f"rollouts as a new run: nightjar eval rescore {directory.run_id}"
        )
