"""Run directories that a warehouse keeps beside its segments: for parts of a run, and for other installations."""

from __future__ import annotations

from pathlib import Path

from nightjar.errors import RunDirectoryError
from nightjar.runs import RunDirectory
from nightjar.runs.archive import copy_files, pack_run, unpack_run
from nightjar.scratch import scratch_folder
from nightjar.warehouse.storage.archives import Archives
from nightjar.warehouse.storage.segments import is_held
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.run_files import read_run


def keep_archive(directory: RunDirectory, store: Store) -> bool:
    """Keeps a run directory in a warehouse, unless it is there with this content, or that of a later moment.

    Returns:
        Whether it was not.

    Raises:
        RunDirectoryError: it cannot be read.
        WarehouseError: it is damaged, or the warehouse cannot be written.
    """
    archives = Archives(store)
    with scratch_folder() as scratch:
        files = read_run(directory.path, scratch)
        if is_held(archives.newest(files.run_id), files.version):
            return False
        pack_run(directory, scratch / "run.zip")
        archives.put(files.run_id, files.version, scratch / "run.zip")
    return True


def fetch_archive(store: Store, run_id: str, version: str, scratch: Path) -> RunDirectory:
    """Makes a run directory that a warehouse keeps anew in an empty folder.

    Raises:
        RunDirectoryError: it is damaged.
        WarehouseError: it is not there any more, or cannot be read.
    """
    archive = scratch / f"{run_id}.zip"
    Archives(store).fetch(run_id, version, archive)
    try:
        return unpack_run(archive, scratch / run_id)
    except RunDirectoryError as error:
        raise RunDirectoryError(
            f"{error}. Remove {Archives(store).shown(run_id, version)}, push the run again"
        ) from error


def take_over(copy: RunDirectory, directory: RunDirectory) -> bool:
    """Gives a run directory the files of a copy of the run, unless it has this content, or that of a later moment.

    Args:
        copy: stays as it is.
        directory: made where it is missing.

    Returns:
        Whether it needed them.

    Raises:
        RunError: the directory is being written, or cannot be.
        WarehouseError: one of the two is damaged.
    """
    with directory, scratch_folder() as scratch:
        (scratch / "copy").mkdir()
        version = read_run(copy.path, scratch / "copy").version
        if directory.has_metadata() and is_held(read_run(directory.path, scratch).version, version):
            return False
        copy_files(copy, directory)
    return True
