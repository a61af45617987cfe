"""Sets what is damaged in a run directory aside, so that a resume does again what they held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from nightjar.errors import RunDirectoryError
from nightjar.runs.directory import RunDirectory
from nightjar.runs.jsonl import Line, parse_line, replace_file, whole_lines
from nightjar.runs.recorded import RecordedAttempt, RecordedResult, check_restorable, checked


def repair(directory: RunDirectory) -> list[str]:
    """Moves damaged metadata, and the damaged lines of the ledger and of the results, to ``*.damaged`` beside them.

    Returns:
        What was wrong with each; nothing is changed where that is nothing.

    Raises:
        RunDirectoryError: there is no run, it is being written, or its files cannot be read or written.
    """
    directory.read_config()
    with directory:
        return [
            *_metadata_aside(directory),
            *_set_aside(directory.attempts_path, _check_attempt),
            *_set_aside(directory.results_path, lambda line, path: checked(line, path, RecordedResult)),
        ]


def _metadata_aside(directory: RunDirectory) -> list[str]:
    """Moves damaged metadata aside: a resume adds up anew."""
    path = directory.path / "metadata.json"
    try:
        if path.exists():
            directory.read_metadata()
    except RunDirectoryError as damage:
        path.replace(path.with_suffix(".damaged"))
        return [str(damage)]
    return []


def _set_aside(path: Path, check: Callable[[Line, Path], object]) -> list[str]:
    faults = dict(_faults(path, check))
    if faults:
        _append(path.with_suffix(".damaged"), (line for number, _, line in whole_lines(path) if number in faults))
        replace_file(path, (line for number, _, line in whole_lines(path) if number not in faults))
    return list(faults.values())


def _faults(path: Path, check: Callable[[Line, Path], object]) -> Iterator[tuple[int, str]]:
    """Yields the number of each damaged line, and what is wrong with it."""
    for number, place, line in whole_lines(path):
        try:
            check(Line(number, place, parse_line(line, path, number)), path)
        except RunDirectoryError as damage:
            yield number, str(damage)


def _check_attempt(line: Line, path: Path) -> None:
    checked(line, path, RecordedAttempt)
    if line.row["error"] is None:
        check_restorable(line, path)


def _append(path: Path, lines: Iterator[bytes]) -> None:
    try:
        with path.open("ab") as file:
            file.writelines(lines)
    except OSError as error:
        raise RunDirectoryError(f"Cannot write {str(path)!r}: {error.strerror}") from error
