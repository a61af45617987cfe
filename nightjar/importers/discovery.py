"""Finds results of Nightjar, ``verifiers``, NeMo Evaluator, Inspect and lm-eval in folders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from nightjar.core.environment_id import ENVIRONMENTS_DIR
from nightjar.engine.runs import OUTPUT_DIR
from nightjar.errors import WarehouseError
from nightjar.importers.inspect_files import SUFFIXES, is_log
from nightjar.importers.lm_eval_files import results_at, results_in
from nightjar.importers.reading import read_object

Kind: TypeAlias = Literal["nightjar", "verifiers", "nemo", "inspect", "lm-eval"]

_BUNDLES = "eval-*.json"
_SHARD = re.compile(r"shard_\d+")
_METADATA, _RESULTS = "metadata.json", "results.jsonl"


@dataclass(frozen=True)
class FoundResults:
    """The results of one run; ``kind`` is the program that wrote them.

    ``path`` is the folder; for NeMo Evaluator, it may be a bundle; for Inspect, it is the log; for lm-eval, the samples
    of a task. ``shards`` are folders of an evaluation in shards. If the shards are merged, ``path`` holds all rows;
    otherwise it is where a merge would put the rows.
    """

    kind: Kind
    path: Path
    shards: tuple[Path, ...] = ()


def find_results(path: Path, unreadable: dict[Path, str] | None = None) -> Iterator[FoundResults]:
    """Yields the results of every run in a folder and below, sorted by name; raises WarehouseError without results.

    Skips hidden folders and segments of a warehouse; yields a folder once, even if several links lead to it. A
    folder that cannot be read raises WarehouseError; with ``unreadable``, it is added there with the reason.
    """
    found = list(_found(path, unreadable))
    if not found:
        raise WarehouseError(
            f"No results in {str(path)!r}. Expected run directories of Nightjar, folders of verifiers "
            f"({_RESULTS} and {_METADATA}), bundles of NeMo Evaluator ({_BUNDLES} and {_RESULTS}), "
            "logs of Inspect (.eval and .json) or results of lm-eval (results_*.json and samples_*.jsonl)."
        )
    yield from found


def default_paths() -> list[Path]:
    return [path for path in (OUTPUT_DIR, *sorted(ENVIRONMENTS_DIR.glob("*/outputs"))) if path.is_dir()]


def find_run_directories(paths: Sequence[Path]) -> list[Path]:
    """Returns the run directories of Nightjar in folders of any depth; raises WarehouseError if there is no run."""
    found = {one.path.resolve(): one.path for path in paths for one in _found(path) if one.kind == "nightjar"}
    if not found:
        places = ", ".join(repr(str(path)) for path in paths) or "'outputs' and 'environments/*/outputs'"
        raise WarehouseError(f"No run directories in {places}. Name the folders that hold them.")
    return list(found.values())


def bundles_in(folder: Path) -> list[Path]:
    """Returns the bundles of NeMo Evaluator in a folder; a damaged file counts if its folder has results."""
    return [path for path in sorted(folder.glob(_BUNDLES)) if _is_bundle(path)]


def _found(path: Path, unreadable: dict[Path, str] | None = None) -> Iterator[FoundResults]:
    if path.is_dir():
        yield from _each_run_once(list(_in_folders(path, unreadable)))
    elif not path.exists():
        raise WarehouseError(f"Cannot import {str(path)!r}: there is no such file or folder.")
    elif is_log(path):
        yield FoundResults("inspect", path)
    elif of_tasks := results_at(path):
        yield from (FoundResults("lm-eval", one) for one in of_tasks)
    elif path.suffix == ".json" and path.name not in {_METADATA, "config.json"} and _is_bundle(path):
        yield FoundResults("nemo", path)
    elif kind := _kind(path.parent):
        yield FoundResults(kind, path.parent)


def _each_run_once(found: Sequence[FoundResults]) -> list[FoundResults]:
    """Leaves out bundles and logs of Inspect that Nightjar wrote for run directories in the same list."""
    runs = {one.path.name for one in found if one.kind == "nightjar"}
    return [one for one in found if not _is_written_for(one, runs)]


def _is_written_for(found: FoundResults, runs: set[str]) -> bool:
    if found.kind == "inspect":
        return found.path.stem.rpartition("_")[2] in runs
    return found.kind == "nemo" and not found.shards and _run_ids(found.path) <= runs


def _run_ids(folder: Path) -> set[str]:
    """Returns the part after ``eval-`` in the names of bundles; Nightjar's bundles have the run id there."""
    return {path.name.split("-")[1] for path in bundles_in(folder)}


def _is_bundle(path: Path) -> bool:
    try:
        content = read_object(path)
    except WarehouseError:
        return (path.parent / _RESULTS).is_file()
    return isinstance(content.get("benchmark"), dict) and isinstance(content.get("run_id"), str)


def _in_folders(root: Path, unreadable: dict[Path, str] | None) -> Iterator[FoundResults]:
    """Walks folders with a list, because they may be nested deeper than Python's recursion limit."""
    waiting, seen, merged = [root], set[Path](), set[Path]()
    while waiting:
        folder = waiting.pop()
        if folder.resolve() in seen:
            continue
        seen.add(folder.resolve())
        try:
            below = _folders(folder)
            shards = _shards(folder, [path for path in below if _SHARD.fullmatch(path.name)])
        except WarehouseError as error:
            if unreadable is None:
                raise
            unreadable[folder] = str(error)
            continue
        yield from (FoundResults("nemo", target, parts) for target, parts in shards.items())
        merged |= shards.keys()
        if (kind := _kind(folder)) and folder not in merged:
            yield FoundResults(kind, folder)
        yield from (FoundResults("inspect", path) for path in _logs(folder))
        yield from (FoundResults("lm-eval", path) for path in results_in(folder))
        waiting.extend(path for path in reversed(below) if not (shards and _SHARD.fullmatch(path.name)))


def _folders(folder: Path) -> list[Path]:
    try:
        below = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    except OSError as error:
        raise WarehouseError(f"Cannot read {str(folder)!r}: {error.strerror}") from error
    return [path for path in below if path.name != "segments" or not any(path.glob("*/segment.json"))]


def _logs(folder: Path) -> list[Path]:
    files = (path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES and not path.name.startswith("."))
    return [path for path in files if path.is_file() and is_log(path)]


def _kind(folder: Path) -> Kind | None:
    has_metadata = (folder / _METADATA).is_file()
    if has_metadata and _is_nightjar(folder):
        return "nightjar"
    if bundles_in(folder):
        return "nemo"
    return "verifiers" if has_metadata and (folder / _RESULTS).is_file() else None


def _is_nightjar(folder: Path) -> bool:
    if (folder / "attempts.jsonl").is_file():
        return True
    try:
        metadata = read_object(folder / _METADATA)
    except WarehouseError:
        return (folder / "config.json").is_file()
    return isinstance(metadata.get("run_id"), str) and isinstance(metadata.get("status"), str)


def _shards(folder: Path, shards: list[Path]) -> dict[Path, tuple[Path, ...]]:
    """Returns the shards of runs by the folder in which ``nel eval merge`` merges the shards."""
    parts: defaultdict[Path, list[Path]] = defaultdict(list)
    for shard in sorted(shards, key=lambda path: int(path.name.partition("_")[2])):
        for part in [shard, *_folders(shard)]:
            if bundles_in(part):
                parts[folder if part == shard else folder / part.name].append(part)
    return {target: tuple(found) for target, found in parts.items()}
