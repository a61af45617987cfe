"""Finds results in folders: those of Nightjar, of ``verifiers`` and of NeMo Evaluator."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nightjar.adapters.results.values import read_object
from nightjar.errors import WarehouseError

Kind: TypeAlias = Literal["nightjar", "verifiers", "nemo"]

BUNDLES = "eval-*.json"
_SHARD = re.compile(r"shard_\d+")
_METADATA, _RESULTS = "metadata.json", "results.jsonl"


@dataclass(frozen=True)
class FoundResults:
    """The results of one run.

    Attributes:
        kind: which program wrote them.
        path: the folder; of NeMo Evaluator also a bundle.
        shards: folders of a run of NeMo Evaluator that was done in parts. Where they are merged, ``path`` holds all
            rows; otherwise it is where merging would put them.
    """

    kind: Kind
    path: Path
    shards: tuple[Path, ...] = ()


def find_results(path: Path) -> Iterator[FoundResults]:
    """Yields the results of every run in a folder and the folders below it, in the order of their names.

    Hidden folders and the segments of a warehouse are passed over; of a folder that is reached twice, through a link,
    the first way counts.

    Args:
        path: a folder of any depth, the folder of one run, or a file of one run.

    Raises:
        WarehouseError: there are no results.
    """
    _require(path)
    is_empty = True
    for found in _found(path):
        is_empty = False
        yield found
    if is_empty:
        raise WarehouseError(
            f"No results in {str(path)!r}. Expected run directories of Nightjar, folders of verifiers "
            f"({_RESULTS} and {_METADATA}) or bundles of NeMo Evaluator ({BUNDLES} and {_RESULTS})."
        )


def _require(path: Path) -> None:
    if not path.exists():
        raise WarehouseError(f"Cannot import {str(path)!r}: there is no such file or folder.")


def _found(path: Path) -> Iterator[FoundResults]:
    return _in_file(path) if path.is_file() else _in_folder(path)


def default_paths() -> list[Path]:
    """Returns where runs are written when nothing else is said: ``outputs``, and those of environments."""
    return [path for path in (Path("outputs"), *sorted(Path("environments").glob("*/outputs"))) if path.is_dir()]


def find_run_directories(paths: Sequence[Path]) -> list[Path]:
    """Returns the run directories of Nightjar in some folders, at any depth.

    Raises:
        WarehouseError: there are none, or a folder is missing or cannot be read.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        _require(path)
        found |= {one.path.resolve(): one.path for one in _found(path) if one.kind == "nightjar"}
    if not found:
        places = ", ".join(repr(str(path)) for path in paths) or "'outputs' and 'environments/*/outputs'"
        raise WarehouseError(f"No run directories in {places}. Name the folders that hold them.")
    return list(found.values())


def is_bundle(path: Path) -> bool:
    """Says whether a file is a bundle of NeMo Evaluator; a damaged one beside results counts as one."""
    try:
        content = read_object(path)
    except WarehouseError:
        return (path.parent / _RESULTS).is_file()
    return isinstance(content.get("benchmark"), dict) and isinstance(content.get("run_id"), str)


def _in_file(path: Path) -> Iterator[FoundResults]:
    is_json = path.suffix == ".json" and path.name not in {_METADATA, "config.json"}
    if is_json and is_bundle(path):
        yield FoundResults("nemo", path)
    elif kind := _kind(path.parent):
        yield FoundResults(kind, path.parent)


def _in_folder(root: Path) -> Iterator[FoundResults]:
    """Walks folders; what waits is a list, because folders may be nested deeper than functions can be."""
    waiting, seen = [root], set[tuple[int, int]]()
    merged: dict[Path, tuple[Path, ...]] = {}
    while waiting:
        folder = waiting.pop()
        if not _is_new(folder, seen):
            continue
        below = _folders(folder)
        shards = _shards(folder, [path for path in below if _SHARD.fullmatch(path.name)])
        merged |= {target: parts for target, parts in shards.items() if _has_bundle(target)}
        if kind := _kind(folder):
            yield FoundResults(kind, folder, merged.get(folder, ()) if kind == "nemo" else ())
        yield from (FoundResults("nemo", target, parts) for target, parts in shards.items() if target not in merged)
        waiting.extend(path for path in reversed(below) if not (shards and _SHARD.fullmatch(path.name)))


def _is_new(folder: Path, seen: set[tuple[int, int]]) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    key = (status.st_dev, status.st_ino)
    is_new = key not in seen
    seen.add(key)
    return is_new


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError as error:
        raise WarehouseError(f"Cannot read {str(folder)!r}: {error.strerror}") from error
    return [folder / name for name in names if not _is_warehouse(folder / name)]


def _is_warehouse(folder: Path) -> bool:
    return folder.name == "segments" and any(folder.glob("*/segment.json"))


def _kind(folder: Path) -> Kind | None:
    if _is_nightjar(folder):
        return "nightjar"
    if not (folder / _RESULTS).is_file():
        return "nemo" if _has_bundle(folder) else None
    if _has_bundle(folder):
        return "nemo"
    return "verifiers" if (folder / _METADATA).is_file() else None


def _is_nightjar(folder: Path) -> bool:
    if not (folder / _METADATA).is_file():
        return False
    metadata = _object_in(folder / _METADATA)
    if metadata is None:
        return (folder / "config.json").is_file()
    return isinstance(metadata.get("run_id"), str) and isinstance(metadata.get("status"), str)


def _object_in(path: Path) -> Mapping[str, Any] | None:
    try:
        return read_object(path)
    except WarehouseError:
        return None


def _has_bundle(folder: Path) -> bool:
    return any(is_bundle(path) for path in sorted(folder.glob(BUNDLES)))


def _shards(folder: Path, shards: list[Path]) -> dict[Path, tuple[Path, ...]]:
    """Returns the parts of runs that were done in shards, by the folder where ``nel eval merge`` puts them together.

    A shard holds a folder for each benchmark, or the results of one themselves.
    """
    parts: defaultdict[Path, list[Path]] = defaultdict(list)
    for shard in sorted(shards, key=lambda path: int(path.name.partition("_")[2])):
        for part in [shard, *_folders(shard)]:
            if _has_bundle(part):
                parts[folder if part == shard else folder / part.name].append(part)
    return {target: tuple(found) for target, found in parts.items()}
