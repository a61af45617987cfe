"""Joins the parts of a run into one run directory. Packs a run directory into one file, and unpacks it."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar.core.files import replace_file
from nightjar.core.parts import Part
from nightjar.engine.runs.directory import FORMAT, RunDirectory
from nightjar.engine.runs.metadata import final_status
from nightjar.engine.runs.opening import add_up
from nightjar.errors import NewerRunDirectoryError, RunDirectoryError

_FILES = (
    "attempts.jsonl", "results.jsonl", "attempts.checksums", "results.checksums", "config.json", "metadata.json",
)  # fmt: skip
_ARTIFACTS = "artifacts"
_FAST = 1
_CHUNK_BYTES = 1 << 20


def join_parts(parts: Sequence[RunDirectory], joined: RunDirectory) -> None:
    """Joins the parts of a run, in order. The run gets the first start, the last end and the longest duration."""
    config, of_parts = parts[0].read_config(), [part.read_metadata() for part in parts]
    whole = config.pop("whole")
    for name in ("attempts.jsonl", "results.jsonl"):
        _concatenate(parts, joined, name)
    for part in parts:
        _copy_artifacts(part.path, joined.path)
    metadata = _metadata(of_parts, whole)
    summary = add_up(joined, metadata)
    status = final_status(summary, None, config.get("tolerated_failures") or 0.0)
    stopped = [each["status"] for each in of_parts if each["status"] not in {"completed", "incomplete"}]
    ended = {"status": stopped[0] if stopped and status != "completed" else status, "digests": joined.digests()}
    selected = {"selected_examples": whole["num_examples"], "dataset_fingerprint": whole["dataset_fingerprint"]}
    written_as = {"format": FORMAT, "run_id": metadata["run_id"]}
    joined.write_config({**config, "part": None, **selected, **written_as})
    joined.write_metadata({**metadata, **ended, **summary.metadata(), **written_as})


def _metadata(of_parts: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]) -> dict[str, Any]:
    first = min(of_parts, key=lambda each: each["started_at"])
    part = Part.of(first["run_id"])
    assert part is not None, "it is called as a part"
    requests: Counter[str] = Counter()
    for each in of_parts:
        requests.update({name: count for name, count in (each["requests"] or {}).items() if name != "pace"})
    return {
        **{name: value for name, value in first.items() if name != "published_at"},
        "run_id": part.run_id,
        "flow_run_id": None,
        "num_examples": whole["num_examples"],
        "rollouts": whole["num_examples"] * first["rollouts_per_example"],
        "dataset_fingerprint": whole["dataset_fingerprint"],
        "finished_at": max((each["finished_at"] for each in of_parts if each["finished_at"]), default=None),
        "time_ms": max(each["time_ms"] or 0 for each in of_parts),
        "requests": {
            **requests,
            "pace": [pace for each in of_parts for pace in (each["requests"] or {}).get("pace", ())],
        },
    }


def _concatenate(parts: Sequence[RunDirectory], joined: RunDirectory, name: str) -> None:
    try:
        with (joined.path / name).open("wb") as file:
            for part in parts:
                with (part.path / name).open("rb") as content:
                    shutil.copyfileobj(content, file)
    except OSError as error:
        raise RunDirectoryError(f"The parts cannot be joined: {error.strerror}: {error.filename}") from error


def pack_run(directory: RunDirectory, archive: Path) -> None:
    """Writes the files of a run directory into a ZIP archive, whose checksums detect damage."""
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=_FAST) as packed:
            for name in _FILES:
                if (directory.path / name).exists():
                    packed.write(directory.path / name, name)
            for path in sorted((directory.path / _ARTIFACTS).rglob("*")):
                if path.is_file() and not path.is_symlink():
                    packed.write(path, path.relative_to(directory.path))
    except OSError as error:
        raise RunDirectoryError(f"Run {directory.run_id!r} cannot be packed: {error.strerror}") from error


def unpack_run(archive: Path, folder: Path) -> RunDirectory:
    try:
        folder.mkdir(parents=True)
        with zipfile.ZipFile(archive) as packed:
            for name in {*_FILES} & {*packed.namelist()}:
                with packed.open(name) as content, (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
            for name in packed.namelist():
                if name.startswith(f"{_ARTIFACTS}/"):
                    packed.extract(name, folder)
        directory = RunDirectory(folder)
        directory.read_config()
        directory.read_metadata()
    except NewerRunDirectoryError as newer:
        raise NewerRunDirectoryError(archive.name, newer.found, newer.known) from newer
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RunDirectoryError) as damage:
        raise RunDirectoryError(f"{archive.name} is damaged: {damage}") from damage
    except OSError as error:
        raise RunDirectoryError(f"{archive.name} cannot be unpacked: {error.strerror}") from error
    return directory


def copy_files(source: RunDirectory, target: RunDirectory) -> None:
    for name in _FILES:
        if (source.path / name).exists():
            with (source.path / name).open("rb") as content:
                replace_file(target.path / name, iter(lambda: content.read(_CHUNK_BYTES), b""))
        else:
            (target.path / name).unlink(missing_ok=True)
    _copy_artifacts(source.path, target.path)


def _copy_artifacts(source: Path, target: Path) -> None:
    """Copies the files that agents left. Each rollout has a folder of its own, so parts have no file in common."""
    if (source / _ARTIFACTS).is_dir():
        try:
            shutil.copytree(source / _ARTIFACTS, target / _ARTIFACTS, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            raise RunDirectoryError(f"The artifacts of {str(source)!r} cannot be copied: {error}") from error
