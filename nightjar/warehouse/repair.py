"""Moves damaged segments to the folder ``damaged``, and publishes their runs again from run directories.

Every step leaves the warehouse consistent, even if the repair is killed or other processes read and publish meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import duckdb

from nightjar.errors import RunConflictError, WarehouseError
from nightjar.warehouse.database import explained, parquet, reason, scratch_connection
from nightjar.warehouse.location import file_errors
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment, is_pack_id
from nightjar.warehouse.storage.store import Fault
from nightjar.warehouse.storage.tables import FIRST_SCHEMA, columns, in_current_form
from nightjar.warehouse.writing.packing import alone_in, new_pack_id, pack_everything, remove_retired
from nightjar.warehouse.writing.publish_report import PublishReport
from nightjar.warehouse.writing.publishing import Progress, publish_all, silent

SET_ASIDE = "damaged"

_DIGEST_CHARACTERS = 64

_ROWS = "SELECT num_rows FROM parquet_file_metadata(?)"
_COLUMNS = "SELECT DISTINCT name FROM parquet_schema(?)"


@dataclass(frozen=True)
class AsideRun:
    """A run in a segment that was set aside; fields are None if unknown."""

    version: str | None = None
    run_dir: str | None = None

    @property
    def is_here(self) -> bool:
        return self.run_dir is not None and (Path(self.run_dir) / "metadata.json").is_file()


@dataclass
class Fixed:
    """The result of a repair. ``examples_kept`` are packs whose examples were kept, because later segments use them."""

    set_aside: dict[str, Path] = field(default_factory=dict)
    examples_kept: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass
class RebuildReport:
    """The result of a rebuild. ``lost`` has the runs that were only in damaged segments."""

    published: int = 0
    rollouts: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    set_aside: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        return not (self.failures or self.lost)


def fix(folder: Folder, *, deep: bool = False, progress: Progress = silent) -> Fixed:
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


def rebuild(folder: Folder, run_dirs: Sequence[Path], progress: Progress = silent) -> RebuildReport:
    """Sets damaged segments aside, publishes run directories again, and packs everything.

    A run stays unchanged if it has no run directory, if the directory is damaged, or if the warehouse has newer
    attempts. A missing warehouse is created. If the rebuild fails, the warehouse stays consistent.
    """
    started = time.monotonic()
    folder.make()
    fixed = set_damaged_aside(folder, deep=True)
    report = RebuildReport(set_aside=list(fixed.set_aside))
    published: dict[str, PublishReport] = {}
    conflicts: set[str] = set()
    for run_dir, outcome in publish_all(folder, run_dirs, progress, anew=True):
        if isinstance(outcome, PublishReport):
            published[outcome.run_id] = outcome
        else:
            report.failures[str(run_dir)] = str(outcome)
            conflicts |= {str(run_dir)} if isinstance(outcome, RunConflictError) else set()
    pack_everything(folder)
    made = [one for one in published.values() if not one.is_older]
    report.published, report.rollouts = len(made), sum(one.rollouts for one in made)
    catalog = folder.catalog()
    report.kept = dict(_kept(catalog, published, report, conflicts))
    for path in fixed.set_aside.values():
        report.lost += sorted(missing_from(catalog, runs_in(path)))
    report.seconds = time.monotonic() - started
    return report


def _kept(
    catalog: Catalog, published: Mapping[str, PublishReport], report: RebuildReport, conflicts: Collection[str]
) -> Iterator[tuple[str, str]]:
    damaged = {Path(path).name for path in report.failures if path not in conflicts}
    for run_id in sorted(catalog.holders):
        if run_id not in published:
            yield run_id, "its run directory is damaged" if run_id in damaged else "no run directory"
        elif published[run_id].is_older:
            yield run_id, "newer than its run directory"


def set_damaged_aside(folder: Folder, *, deep: bool, progress: Progress = silent) -> Fixed:
    """Moves damaged segments to the folder ``damaged``, and removes retired ones, while nobody else packs."""
    fixed = Fixed()
    with alone_in(folder):
        catalog, faults = described_segments(folder)
        faults += file_faults(folder, catalog, deep=deep, progress=progress)
        for name in dict.fromkeys(fault.segment_id for fault in faults if fault.is_damage):
            if (folder.segments_path / name).is_dir():  # not removed meanwhile
                _set_aside(folder, catalog, name, fixed)
        remove_retired(folder)
    return fixed


def _set_aside(folder: Folder, catalog: Catalog, name: str, fixed: Fixed) -> None:
    segment = catalog.segments.get(name)
    is_doubtful = segment is not None and any(folder.faults([segment], ["examples"], deep=True))
    schema = FIRST_SCHEMA if segment is None else segment.schema
    path = set_aside(folder, name)
    fixed.set_aside[name] = path
    if is_pack_id(name) and not is_doubtful and _keep_examples(folder, name, path / "examples.parquet", schema):
        fixed.examples_kept.append(name)


def _keep_examples(folder: Folder, name: str, examples: Path, schema: int) -> bool:
    """Puts the examples of a pack back, because later packs rely on them. Returns False if the file cannot be read."""
    if not examples.is_file():
        return False
    relations = {kind: in_current_form(kind, []) for kind in KINDS}
    relations["examples"] = in_current_form("examples", [(parquet(examples), schema)])
    with (
        explained(f"Cannot write the warehouse {folder}"),
        scratch_connection() as connection,
    ):
        try:
            folder.write_segment(connection, new_pack_id(), versions={}, relations=relations, replaces=[name])
        except (duckdb.Error, UnicodeDecodeError) as error:
            if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
                raise
            return False
    return True


def set_aside(folder: Folder, name: str) -> Path:
    target = folder.path / SET_ASIDE / name
    with file_errors(f"Cannot set aside segment {name!r}"):
        target.parent.mkdir(exist_ok=True)
        while target.exists():
            target = target.with_name(f"{target.name}-")
        return (folder.segments_path / name).rename(target)


def runs_in(path: Path) -> dict[str, AsideRun]:
    """Returns the runs in a damaged segment.

    Reads ``runs.parquet``; if that is damaged, ``segment.json``; if that is damaged too, the name of the segment.
    Returns no runs if none of these names a run.
    """
    query = f"SELECT run_id, version, run_dir FROM {parquet(path / 'runs.parquet')}"  # noqa: S608 - own path, quoted
    with closing(duckdb.connect(":memory:")) as connection, suppress(duckdb.Error, UnicodeDecodeError):
        found = connection.execute(query).fetchall()
        return {run_id: AsideRun(version, run_dir) for run_id, version, run_dir in found}
    with suppress(OSError, WarehouseError):
        versions = Segment.load(path.name, (path / COMMIT).read_bytes()).versions
        return {run_id: AsideRun(version) for run_id, version in versions.items()}
    name, _, version = path.name.partition(".")
    is_digest = len(name) == _DIGEST_CHARACTERS and "%" not in name
    return {} if is_digest or is_pack_id(path.name) or not version else {unquote(name): AsideRun(version.rstrip("-"))}


def missing_from(catalog: Catalog, runs: Mapping[str, AsideRun]) -> dict[str, AsideRun]:
    return {run_id: run for run_id, run in runs.items() if run_id not in catalog.holders}


def older_in(catalog: Catalog, runs: Mapping[str, AsideRun]) -> dict[str, AsideRun]:
    held = {run_id: holder.versions[run_id] for run_id, holder in catalog.holders.items() if run_id in runs}
    return {run_id: run for run_id, run in runs.items() if run_id in held and held[run_id] < (run.version or "")}


def run_dirs_of(runs: Iterable[AsideRun]) -> list[str]:
    return sorted({str(run.run_dir) for run in runs if run.is_here})


def described_segments(folder: Folder) -> tuple[Catalog, list[Fault]]:
    """Returns the segments with a readable ``segment.json``, and the faults of the others.

    Raises WarehouseError if a newer Nightjar wrote a segment, or if this user may not read a segment.
    """
    segments, faults = [], []
    for path in sorted(path for path in folder.segments_path.glob("[!.]*") if path.is_dir()):
        try:
            segments.append(Segment.load(path.name, (path / COMMIT).read_bytes()))
        except PermissionError as error:
            raise folder.unreadable(path.name, error) from error
        except OSError as error:
            faults.append(Fault(path.name, COMMIT, f"cannot be read: {error.strerror}"))
        except WarehouseError as error:
            if error.__cause__ is None:  # of a newer Nightjar
                raise
            faults.append(Fault(path.name, COMMIT, f"is damaged: {error.__cause__}"))
    return Catalog.of(segments), faults


def file_faults(folder: Folder, catalog: Catalog, *, deep: bool, progress: Progress = silent) -> Iterator[Fault]:
    """Checks the needed segments' lengths, footers and run ids, with ``deep`` also their SHA-256. Yields the faults."""
    for done, segment in enumerate(catalog.needed.values(), start=1):
        yield from list(folder.faults([segment], deep=deep)) or _content_faults(folder, segment)
        progress(done, len(catalog.needed))


def _content_faults(folder: Folder, segment: Segment) -> Iterator[Fault]:
    """Yields faults. Uses a separate DuckDB instance, because a damaged file can make an instance unusable."""
    with closing(duckdb.connect(":memory:")) as connection:
        for kind in KINDS:
            path = folder.file(segment.segment_id, kind)
            try:
                [(rows,)] = connection.execute(_ROWS, [path]).fetchall()
                found = {name for (name,) in connection.execute(_COLUMNS, [path]).fetchall()}
                runs = f"SELECT run_id, version FROM {parquet(path)}"  # noqa: S608 - own path, quoted
                versions = dict(connection.execute(runs).fetchall()) if kind == "runs" else segment.versions
            except (duckdb.Error, UnicodeDecodeError) as error:
                yield Fault.of(segment, kind, f"cannot be read: {reason(error)}")
                return
            expected = [column.name for column in columns()[kind] if column.schema <= segment.schema]
            if lacking := [name for name in expected if name not in found]:
                yield Fault.of(segment, kind, f"lacks the columns {', '.join(lacking)}")
            if rows != segment.rows[kind]:
                yield Fault.of(segment, kind, f"has {rows:,} rows instead of {segment.rows[kind]:,}")
            if versions != segment.versions:
                yield Fault(segment.segment_id, COMMIT, "contradicts runs.parquet")
