"""Joins the parts of a run when the last part arrives in the warehouse, which keeps the run directories of parts.

Each part is stored before it looks for the others, so at least one part sees all parts. If several parts see all
parts, they all make the same run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from nightjar.core.files import scratch_folder
from nightjar.core.parts import Part
from nightjar.engine.runs import RunDirectory
from nightjar.engine.runs.identity import differences
from nightjar.engine.runs.parts import copy_files, join_parts, pack_run, unpack_run
from nightjar.errors import ConfigError, NewerRunDirectoryError, RunDirectoryError, WarehouseError
from nightjar.evaluation.resuming import saved_config
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.archives import Archives
from nightjar.warehouse.storage.segments import is_held
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.conflicts import in_directory, refuse_conflict
from nightjar.warehouse.writing.run_files import read_run


def keep_archive(directory: RunDirectory, store: Store) -> bool:
    """Stores a run directory in a warehouse; returns False if the warehouse has the same or newer content."""
    archives = Archives(store)
    with scratch_folder() as scratch:
        files = read_run(directory.path, scratch)
        if is_held(archives.newest(files.run_id), files.version):
            return False
        pack_run(directory, scratch / "run.zip")
        archives.put(files.run_id, files.version, scratch / "run.zip")
    return True


def fetch_archive(store: Store, run_id: str, version: str, scratch: Path) -> RunDirectory:
    archive = scratch / f"{run_id}.zip"
    Archives(store).fetch(run_id, version, archive)
    try:
        return unpack_run(archive, scratch / run_id)
    except NewerRunDirectoryError:
        raise
    except RunDirectoryError as error:
        raise RunDirectoryError(
            f"{error}. Remove {Archives(store).shown(run_id, version)}, push the run again"
        ) from error


def take_over(copy: RunDirectory, directory: RunDirectory) -> bool:
    """Copies the files of ``copy`` into ``directory``, or returns False if this has the same or newer content."""
    with directory, scratch_folder() as scratch:
        (scratch / "copy").mkdir()
        version = read_run(copy.path, scratch / "copy").version
        if directory.has_metadata():
            refuse_conflict(in_directory(directory), in_directory(copy), f"The folder {directory.path}")
        if directory.has_metadata() and is_held(read_run(directory.path, scratch).version, version):
            return False
        copy_files(copy, directory)
    return True


logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 60.0
"""How long a process that joins the parts waits for another process that does the same."""


def bring_part(part: Part, directory: RunDirectory, warehouse: Warehouse) -> None:
    if is_merged(part, warehouse) and not directory.exists():
        raise ConfigError(f"Run {part.run_id!r} is complete in {warehouse.location}: nothing left to do for {part}")
    store = warehouse.store()
    if (version := Archives(store).newest(str(part))) is not None:
        with scratch_folder() as scratch:
            take_over(fetch_archive(store, str(part), version, scratch), directory)


def is_merged(part: Part, warehouse: Warehouse) -> bool:
    """Returns whether the run of a part is complete in the warehouse. The part is then no longer kept."""
    store = warehouse.store()
    return part.run_id in store.catalog().holders and Archives(store).newest(str(part)) is None


def merge_parts(part: Part, folder: Path, warehouse: Warehouse) -> RunDirectory | None:
    """Joins the parts of a run in ``folder``; returns None if parts are missing or another process has joined them."""
    store = warehouse.store()
    parts = Part.all_of(part.run_id, part.count)
    versions = {each: version for each in parts if (version := Archives(store).newest(str(each)))}
    if missing := [str(each.number) for each in parts if each not in versions]:
        if not is_merged(part, warehouse):
            logger.info("Run %s will be joined when its parts %s have arrived", part.run_id, ", ".join(missing))
        return None
    directory = RunDirectory(folder / part.run_id, _PATIENCE_SECONDS)
    try:
        _merge(store, versions, directory)
    except WarehouseError:
        if is_merged(part, warehouse):  # another process joined and removed the parts
            return None
        raise
    return directory


def forget_parts(part: Part, warehouse: Warehouse) -> None:
    archives = Archives(warehouse.store())
    for each in Part.all_of(part.run_id, part.count):
        archives.remove(str(each))


def _merge(store: Store, versions: Mapping[Part, str], directory: RunDirectory) -> None:
    with scratch_folder() as scratch:
        parts = [fetch_archive(store, str(part), version, scratch) for part, version in versions.items()]
        _check_same(parts)
        joined = RunDirectory(scratch / "joined")
        joined.path.mkdir()
        join_parts(parts, joined)
        take_over(joined, directory)
        if len(hashes := {part.read_metadata()["version_info"].get("env_hash") for part in parts}) > 1:
            names = ", ".join(sorted(map(str, hashes)))
            logger.warning("The parts were run with different files of the environment: %s", names)
    metadata = directory.read_metadata()
    logger.info(
        "Run %s is joined from its %d parts: %s, %d of %d rollouts scored, average reward %s, in %s",
        directory.run_id, len(parts), metadata["status"], metadata["scored"], metadata["rollouts"],
        metadata["avg_reward"], directory.path,
    )  # fmt: skip


def _check_same(parts: Sequence[RunDirectory]) -> None:
    first = parts[0].read_config()
    asked = {name: value for name, value in saved_config(parts[0]).identity().items() if name != "part"}
    asked |= {name: first[name] for name in ("whole", "env_version")}
    for part in parts[1:]:
        if found := differences(part.read_config(), asked):
            fields = "; ".join(f"{name}: {mine!r} and {others!r}" for name, (mine, others) in found.items())
            raise RunDirectoryError(f"{part.run_id} and {parts[0].run_id} belong to different runs: {fields}")
