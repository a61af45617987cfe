"""Sets damaged segments aside, and publishes their runs again from the run directories that are on this machine."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from nightjar.scratch import scratch_folder
from nightjar.warehouse.database import connect_scratch, explained, parquet
from nightjar.warehouse.doctor.aside import missing_from, older_in, run_dirs_of, runs_in, set_aside
from nightjar.warehouse.doctor.damage import described_segments, file_faults
from nightjar.warehouse.reading.relations import selection
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import KINDS, Catalog, is_pack_id
from nightjar.warehouse.writing.bulk import Progress, publish_all, silent
from nightjar.warehouse.writing.packing import alone_in, new_pack_id, remove_retired
from nightjar.warehouse.writing.publish_report import PublishReport
from nightjar.warehouse.writing.publishing import write_files


@dataclass
class Fixed:
    """What was mended.

    Attributes:
        set_aside: damaged segments to where they were moved; they do not count any more.
        examples_kept: those of them whose examples are there still, because later segments rely on them.
        published: the runs that were published again.
        failures: run directory to why it could not be published.
    """

    set_aside: dict[str, Path] = field(default_factory=dict)
    examples_kept: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def fix(folder: Folder, *, deep: bool = False, progress: Progress = silent) -> Fixed:
    """Sets damaged segments aside and publishes their runs again, removes leftovers, and writes the snapshot anew.

    Args:
        folder: the warehouse.
        deep: looks for damage in all of every file.
        progress: is told how many segments were read.

    Raises:
        WarehouseError: another process is packing, the folder cannot be written, or a newer Nightjar wrote to it.
    """
    fixed = set_damaged_aside(folder, deep=deep, progress=progress)
    catalog = folder.catalog()
    runs = {run_id: run for path in fixed.set_aside.values() for run_id, run in runs_in(path).items()}
    gone = missing_from(catalog, runs) | older_in(catalog, runs)
    for run_dir, outcome in publish_all(folder, [Path(path) for path in run_dirs_of(gone.values())]):
        if isinstance(outcome, PublishReport):
            fixed.published.append(outcome.run_id)
        else:
            fixed.failures[str(run_dir)] = str(outcome)
    write_snapshot(folder)
    return fixed


def set_damaged_aside(folder: Folder, *, deep: bool, progress: Progress = silent) -> Fixed:
    """Moves damaged segments to the folder ``damaged``, and removes what nobody needs; nobody packs meanwhile.

    Args:
        folder: the warehouse.
        deep: looks for damage in all of every file.
        progress: is told how many segments were read.

    Raises:
        WarehouseError: another process is packing, the folder cannot be written, or a newer Nightjar wrote to it.
    """
    fixed = Fixed()
    with alone_in(folder):
        catalog, faults = described_segments(folder)
        faults += file_faults(folder, catalog, deep=deep, progress=progress)
        for name in dict.fromkeys(fault.segment_id for fault in faults if fault.is_damage):
            if (folder.segments_path / name).is_dir():  # else somebody has removed it meanwhile
                _set_aside(folder, catalog, name, fixed)
        remove_retired(folder)
    return fixed


def _set_aside(folder: Folder, catalog: Catalog, name: str, fixed: Fixed) -> None:
    segment = catalog.segments.get(name)
    is_doubtful = segment is not None and any(folder.faults([segment], ["examples"], deep=True))
    path = set_aside(folder, name)
    fixed.set_aside[name] = path
    if is_pack_id(name) and not is_doubtful and _keep_examples(folder, name, path / "examples.parquet"):
        fixed.examples_kept.append(name)


def _keep_examples(folder: Folder, name: str, examples: Path) -> bool:
    """Puts the examples of a pack into the warehouse again: later packs rely on them. Says whether they can be read."""
    if not examples.is_file():
        return False
    relations = {kind: selection(kind, [], folder.file) for kind in KINDS} | {"examples": f"FROM {parquet(examples)}"}
    with (
        scratch_folder() as spill,
        folder.scratch() as scratch,
        explained(f"Cannot write the warehouse {folder}"),
        closing(connect_scratch(spill)) as connection,
    ):
        try:
            kept = write_files(
                connection, scratch, segment_id=new_pack_id(), versions={}, relations=relations, replaces=[name]
            )
        except (duckdb.Error, UnicodeDecodeError) as error:
            if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
                raise
            return False
        folder.commit(kept, scratch)
    return True
