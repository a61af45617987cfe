"""Moves runs with their run directories through a shared warehouse. The newer of two versions of a run is kept."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from nightjar.core.files import scratch_folder
from nightjar.engine.runs import RunDirectory, run_directories, runs_folder
from nightjar.evaluation.part_runs import fetch_archive, keep_archive, take_over
from nightjar.evaluation.publishing import note_published
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.warehouse import Warehouse
from nightjar.warehouse.exported_runs import copy_run
from nightjar.warehouse.storage.archives import Archives
from nightjar.warehouse.storage.segments import is_held
from nightjar.warehouse.writing.conflicts import check_publishable


class Moved(NamedTuple):
    """A moved run. ``path`` is None if only the results were moved; ``is_new`` says whether the target changed."""

    run_id: str
    path: Path | None
    is_new: bool


def push_to(run: StoredRun, target: Warehouse) -> Moved:
    """Publishes a run in another warehouse, with its run directory if the directory is on this machine."""
    if run.path is None:
        return Moved(run.run_id, None, copy_run(run.warehouse.store(), target.store(), run.run_id))
    directory = run.directory
    with directory if os.access(run.path, os.W_OK) else nullcontext():
        check_publishable(target.store(), directory)
        is_kept = keep_archive(directory, target.store())
        report = target.publish(run.path)
    return Moved(run.run_id, run.path, is_kept or report.is_new)


def pull_from(run: StoredRun, target: Warehouse, output_dir: Path | None = None) -> Moved:
    """Publishes a run of another warehouse in ``target``, and restores its run directory if that was pushed."""
    source = run.warehouse.store()
    held, version = source.catalog().holders.get(run.run_id), Archives(source).newest(run.run_id)
    if version is None or (held is not None and not is_held(version, held.versions[run.run_id])):
        return Moved(run.run_id, None, copy_run(source, target.store(), run.run_id))
    directory = _directory_of(run, output_dir)
    with scratch_folder() as scratch:
        copy = fetch_archive(source, run.run_id, version, scratch)
        check_publishable(target.store(), copy, "Pull it into another warehouse")
        is_taken = take_over(copy, directory)
    report = target.publish(directory.path)
    if is_taken:
        note_published(directory, target)
    return Moved(run.run_id, directory.path, is_taken or report.is_new)


def _directory_of(run: StoredRun, output_dir: Path | None) -> RunDirectory:
    for directory in run_directories(output_dir):
        if directory.run_id == run.run_id:
            return directory
    model = run.metadata["model"] or "unknown"
    return RunDirectory(runs_folder(run.metadata["env_id"], model, output_dir) / run.run_id)
