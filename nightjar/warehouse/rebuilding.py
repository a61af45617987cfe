"""Makes the whole warehouse anew from run directories.

What is damaged is set aside, every run directory is published again, and all of it is packed. Each of these leaves the
warehouse whole whenever it is killed, and whoever reads or publishes meanwhile: of a run the newest version counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nightjar.warehouse.doctor.aside import aside_segments, missing_from
from nightjar.warehouse.doctor.mending import set_damaged_aside
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.writing.bulk import Progress, publish_all, silent
from nightjar.warehouse.writing.packing import pack_everything
from nightjar.warehouse.writing.publish_report import PublishReport


@dataclass
class RebuildReport:
    """What a rebuild did.

    Attributes:
        published: how many runs come from run directories now.
        rollouts: how many records these have.
        kept: run_id of the others to why they were kept as they were.
        failures: run directory to why it could not be published.
        set_aside: damaged segments that were moved to the folder ``damaged``.
        lost: runs that only those segments had.
        seconds: how long it took.
    """

    published: int = 0
    rollouts: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    set_aside: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Says whether nothing failed and nothing was lost."""
        return not (self.failures or self.lost)


def rebuild(folder: Folder, run_dirs: Sequence[Path], progress: Progress = silent) -> RebuildReport:
    """Publishes run directories again, whatever the warehouse holds of them.

    Runs without a run directory stay as they are, and so does one that the warehouse holds with newer attempts, or
    whose run directory is damaged.

    Args:
        folder: the warehouse; made where there is none.
        run_dirs: where to read the runs.
        progress: is told how many of them are read.

    Raises:
        WarehouseError: another process is packing, or the disk is full or broken; the warehouse is whole.
    """
    started = time.monotonic()
    folder.make()
    report = RebuildReport(set_aside=list(set_damaged_aside(folder, deep=True).set_aside))
    published: dict[str, PublishReport] = {}
    for run_dir, outcome in publish_all(folder, run_dirs, progress, anew=True):
        if isinstance(outcome, PublishReport):
            published[outcome.run_id] = outcome
        else:
            report.failures[str(run_dir)] = str(outcome)
    pack_everything(folder)
    write_snapshot(folder)
    made = [one for one in published.values() if not one.is_older]
    report.published, report.rollouts = len(made), sum(one.rollouts for one in made)
    report.kept = dict(_reasons(folder, published, report))
    report.lost = list(_lost(folder, report))
    report.seconds = time.monotonic() - started
    return report


def _reasons(folder: Folder, published: dict[str, PublishReport], report: RebuildReport) -> Iterator[tuple[str, str]]:
    damaged = {Path(path).name for path in report.failures}
    for run_id in sorted(folder.catalog().holders):
        if run_id not in published:
            yield run_id, "its run directory is damaged" if run_id in damaged else "no run directory"
        elif published[run_id].is_older:
            yield run_id, "newer than its run directory"


def _lost(folder: Folder, report: RebuildReport) -> Iterator[str]:
    catalog = folder.catalog()
    for path, runs in aside_segments(folder):
        if path.name.rstrip("-") in report.set_aside:
            yield from sorted(missing_from(catalog, runs))
