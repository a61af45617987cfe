"""Makes the whole warehouse anew from run directories.

The new segments are written beside the old ones and then put among them, in the order in which they rely on each
other. At every moment every run counts exactly once, from the one or from the other; the last new one replaces all
that was there at the beginning. So whenever the process is killed, and whoever reads or publishes meanwhile, the
warehouse is whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import connect_scratch, explained
from nightjar.warehouse.doctor.files import is_readable
from nightjar.warehouse.doctor.mending import mend, set_aside, undescribed
from nightjar.warehouse.foreign import find_results
from nightjar.warehouse.reading.damage import refuse_damaged
from nightjar.warehouse.reading.relations import selection
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment, Source
from nightjar.warehouse.writing.bulk import Progress, publish_all, silent
from nightjar.warehouse.writing.packing import (
    LARGE_ROLLOUTS,
    alone_in,
    new_pack_id,
    pack_everything,
    remove_retired,
)
from nightjar.warehouse.writing.publishing import PublishReport, write_files
from nightjar.warehouse.writing.shared_examples import has_whole_examples


@dataclass
class RebuildReport:
    """What a rebuild did.

    Attributes:
        published: how many runs come from run directories now.
        rollouts: how many records these have.
        kept: run_id of the others to why they were kept as they were.
        failures: run directory to why it could not be published.
        set_aside: damaged segments that were moved to the folder ``damaged``: not all of their runs could be made anew.
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
        return not (self.failures or self.set_aside or self.lost)


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
        found |= {run_dir.resolve(): run_dir for run_dir in _run_directories(path)}
    if not found:
        places = ", ".join(repr(str(path)) for path in paths) or "'outputs' and 'environments/*/outputs'"
        raise WarehouseError(f"No run directories in {places}. Name the folders that hold them.")
    return list(found.values())


def _run_directories(path: Path) -> list[Path]:
    try:
        return [results.path for results in find_results(path) if results.kind == "nightjar"]
    except WarehouseError as error:
        if str(error).startswith("No results in"):
            return []
        raise


def rebuild(folder: Folder, run_dirs: Sequence[Path], progress: Progress = silent) -> RebuildReport:
    """Replaces all that a warehouse holds by what run directories hold now.

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
    report = RebuildReport()
    folder.make()
    with alone_in(folder), folder.scratch() as scratch:
        _mend_all(folder, report)
        old, fresh = folder.catalog(), Folder(scratch)
        _publish(fresh, run_dirs, report, progress)
        made = fresh.catalog()
        _Keeping(folder, old, fresh, report).copy_all()
        _count(made, report)
        pack_everything(fresh)
        _put(folder, fresh, [name for name in old.segments if name not in report.set_aside])
        remove_retired(folder, older_than=timedelta(0))
    write_snapshot(folder)
    return replace(report, seconds=time.monotonic() - started)


def _mend_all(folder: Folder, report: RebuildReport) -> None:
    """Makes the catalog readable."""
    for name in undescribed(folder):
        if not mend(folder, name):
            set_aside(folder, name)
            report.set_aside.append(name)


def _publish(fresh: Folder, run_dirs: Sequence[Path], report: RebuildReport, progress: Progress) -> None:
    for run_dir, outcome in publish_all(fresh, run_dirs, progress):
        if not isinstance(outcome, PublishReport):
            report.failures[str(run_dir)] = str(outcome)


def _count(made: Catalog, report: RebuildReport) -> None:
    used = {run_id: segment for run_id, segment in made.holders.items() if run_id not in report.kept}
    report.published = len(used)
    report.rollouts = sum(segment.rows["rollouts"] for segment in used.values())


class _Keeping:
    """Copies what is not made anew from the old segments to the new ones, with the examples that it needs."""

    def __init__(self, folder: Folder, old: Catalog, fresh: Folder, report: RebuildReport) -> None:
        self._folder = folder
        self._old = old
        self._fresh = fresh
        self._report = report
        self._unreadable: frozenset[str] = frozenset()
        report.kept |= dict(self._reasons(fresh.catalog()))

    def copy_all(self) -> None:
        """Copies in batches; where that fails, looks for what is damaged, and sets it aside if it is needed."""
        segments = [segment for segment in self._old.live.values() if self._kept_in(segment)]
        try:
            self._copy_in_batches(segments)
        except WarehouseError:
            self._unreadable = self._find_unreadable()
            if not self._unreadable:
                raise
            for segment in segments:
                if segment.segment_id in self._unreadable:
                    self._give_up(segment)
            self._copy_in_batches([one for one in segments if one.segment_id not in self._unreadable])

    def _reasons(self, fresh: Catalog) -> Iterator[tuple[str, str]]:
        damaged = {Path(path).name for path in self._report.failures}
        for run_id, segment in self._old.holders.items():
            if run_id not in fresh.holders:
                yield run_id, "its run directory is damaged" if run_id in damaged else "no run directory"
            elif segment.versions[run_id] > fresh.holders[run_id].versions[run_id]:
                yield run_id, "newer than its run directory"

    def _kept_in(self, segment: Segment) -> list[str]:
        dead = set(self._old.dead_runs(segment))
        return [run_id for run_id in segment.versions if run_id in self._report.kept and run_id not in dead]

    def _copy_in_batches(self, segments: Sequence[Segment]) -> None:
        batch: list[Segment] = []
        for segment in segments:
            batch.append(segment)
            if sum(one.rows["rollouts"] for one in batch) >= LARGE_ROLLOUTS:
                self._copy(batch)
                batch = []
        self._copy(batch)

    def _copy(self, segments: Sequence[Segment]) -> None:
        """Copies the kept runs of some segments into one; copies nothing that an earlier try has copied."""
        there = self._fresh.catalog().holders
        kept = {
            run_id: segment.versions[run_id]
            for segment in segments
            for run_id in self._kept_in(segment)
            if run_id not in there or there[run_id].versions[run_id] != segment.versions[run_id]
        }
        if not kept:
            return
        refuse_damaged(self._folder, segments)
        with (
            TemporaryDirectory(prefix="nightjar-") as spill,
            self._fresh.scratch() as scratch,
            explained(f"Cannot rebuild the warehouse {self._folder}"),
            closing(connect_scratch(Path(spill))) as connection,
        ):
            self._folder.prepare(connection)
            copied = write_files(
                connection,
                scratch,
                segment_id=new_pack_id(),
                versions=kept,
                relations=self._relations(segments, kept.keys()),
                replaces=[segment.segment_id for segment in segments],
            )
            self._fresh.commit(copied, scratch)

    def _relations(self, segments: Sequence[Segment], kept: AbstractSet[str]) -> dict[str, str]:
        sources = [
            Source((segment.segment_id,), tuple(sorted(segment.versions.keys() - (kept & set(self._kept_in(segment))))))
            for segment in segments
        ]
        rows = {kind: selection(kind, sources, self._folder.file) for kind in KINDS[:3]}
        contents = selection("examples", [Source(self._example_segments(segments))], self._folder.file)
        return rows | {
            "examples": f"SELECT DISTINCT ON (content_id) * FROM ({contents}) "  # noqa: S608 - own paths, quoted
            f"WHERE content_id IN (SELECT content_id FROM ({rows['rollouts']})) ORDER BY content_id"
        }

    def _example_segments(self, segments: Sequence[Segment]) -> tuple[str, ...]:
        """Where the examples of some segments are: in themselves, and in whole packs where one of them is a pack."""
        own = {segment.segment_id for segment in segments}
        if any(segment.is_pack for segment in segments):
            packs = (one for name, one in self._old.segments.items() if one.is_pack and name not in self._old.replaced)
            own |= {one.segment_id for one in packs if has_whole_examples(self._folder, one)}
        return tuple(sorted(own - self._unreadable))

    def _find_unreadable(self) -> frozenset[str]:
        needed = (one for name, one in self._old.segments.items() if name not in self._old.retired)
        return frozenset(one.segment_id for one in needed if not is_readable(self._folder, one))

    def _give_up(self, segment: Segment) -> None:
        for run_id in self._kept_in(segment):
            del self._report.kept[run_id]
            self._report.lost.append(run_id)
        set_aside(self._folder, segment.segment_id)
        self._report.set_aside.append(segment.segment_id)


def _put(folder: Folder, fresh: Folder, old: Sequence[str]) -> None:
    """Makes the new segments part of the warehouse; the last one replaces the old ones."""
    segments = sorted(fresh.catalog().segments.values(), key=lambda segment: segment.created_at)
    for position, segment in enumerate(segments, start=1):
        path = fresh.segments_path / segment.segment_id
        (path / COMMIT).unlink()
        replaces = {*segment.replaces, *(old if position == len(segments) else ())}
        name = segment.segment_id if segment.is_pack else new_pack_id()
        folder.commit(replace(segment, segment_id=name, replaces=tuple(sorted(replaces))), path)
