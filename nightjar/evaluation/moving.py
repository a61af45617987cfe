"""Runs on their way from one installation to another, through a warehouse that both reach.

A push publishes a run there, with its run directory beside, where that is at hand. A pull publishes it here, and makes
the run directory anew, so that the run can be gone on with. Of a run that both have, the newer content stays.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from nightjar.evaluation.archiving import fetch_archive, keep_archive, take_over
from nightjar.evaluation.publishing import note_published
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.runs import RunDirectory, run_directories, runs_folder
from nightjar.scratch import scratch_folder
from nightjar.warehouse import Warehouse
from nightjar.warehouse.copying import copy_run
from nightjar.warehouse.storage.archives import Archives
from nightjar.warehouse.storage.segments import is_held


class Moved(NamedTuple):
    """A run that was pushed or pulled.

    Attributes:
        run_id: its id.
        path: its run directory here; None where only its results were moved.
        is_new: whether that changed anything.
    """

    run_id: str
    path: Path | None
    is_new: bool


def push_to(run: StoredRun, target: Warehouse) -> Moved:
    """Publishes a run in another warehouse, with its run directory where that is here.

    Raises:
        RunError: it is being written, or damaged.
        WarehouseError: the other warehouse cannot be written, or has tables.
    """
    if run.path is None:
        return Moved(run.run_id, None, copy_run(run.warehouse.store(), target.store(), run.run_id))
    directory = run.directory
    with directory if os.access(run.path, os.W_OK) else nullcontext():
        is_kept = keep_archive(directory, target.store())
        report = target.publish(run.path)
    return Moved(run.run_id, run.path, is_kept or report.is_new)


def pull_from(run: StoredRun, target: Warehouse, output_dir: Path | None = None) -> Moved:
    """Publishes a run of another warehouse here, and makes its run directory where that was pushed.

    Args:
        run: as the other warehouse has it.
        target: the warehouse here.
        output_dir: None for the folder where the run would have been written here.

    Raises:
        RunError: what was pushed is damaged, or the run directory here is being written, or damaged.
        WarehouseError: a warehouse cannot be read or written, or has tables.
    """
    source = run.warehouse.store()
    held, version = source.catalog().holders.get(run.run_id), Archives(source).newest(run.run_id)
    if version is None or (held is not None and not is_held(version, held.versions[run.run_id])):
        return Moved(run.run_id, None, copy_run(source, target.store(), run.run_id))
    directory = _directory_of(run, output_dir)
    with scratch_folder() as scratch:
        is_taken = take_over(fetch_archive(source, run.run_id, version, scratch), directory)
    report = target.publish(directory.path)
    if is_taken:
        note_published(directory)
    return Moved(run.run_id, directory.path, is_taken or report.is_new)


def _directory_of(run: StoredRun, output_dir: Path | None) -> RunDirectory:
    for directory in run_directories(output_dir):
        if directory.run_id == run.run_id:
            return directory
    model = run.metadata["model"] or "unknown"
    return RunDirectory(runs_folder(run.metadata["env_id"], model, output_dir) / run.run_id)
