"""Examines a warehouse: is it whole, how large is it, what does not belong there, and what is to be done?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nightjar.errors import WarehouseError
from nightjar.warehouse.doctor.files import Fault, file_faults, page_faults, uncompressed_bytes
from nightjar.warehouse.doctor.mending import SET_ASIDE, mend, undescribed
from nightjar.warehouse.doctor.rows import Totals, examine
from nightjar.warehouse.doctor.snapshot import snapshot_fault
from nightjar.warehouse.reading.snapshot import NAME, write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.prices import FILE_NAME as PRICES_NAME
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment
from nightjar.warehouse.writing.bulk import Progress, silent
from nightjar.warehouse.writing.packing import FAN_IN, LARGE_ROLLOUTS, remove_retired

REBUILD = "nightjar warehouse rebuild"
FIX = "nightjar warehouse doctor --fix"
DEEP = "nightjar warehouse doctor --deep"
COMPACT = "nightjar warehouse compact"

_OWN_NAMES = {"segments", NAME, f"{NAME}.wal", PRICES_NAME, SET_ASIDE}
_OWN_PATTERNS = ("*.lock", "nightjar-*.duckdb", ".*")
_LEFTOVERS = (f".{NAME}.*.tmp", f".{PRICES_NAME}.*.tmp")
_LEFTOVER_AFTER_SECONDS = 60.0
_LOCK_TIMEOUT_SECONDS = 10.0
_TRIES = 5
_MANY_SMALL = 4 * FAN_IN


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        what: what it is, and where.
        remedy: the command, or what else, that mends it.
        needs_action: False where it does no harm, or goes away by itself.
    """

    what: str
    remedy: str
    needs_action: bool = True


@dataclass(frozen=True)
class Sizes:
    """How many bytes there are.

    Attributes:
        live: in segments that are needed.
        retired: in segments that nobody needs any more.
        leftovers: in what dead processes left half written.
        kinds: of ``live``, by kind of file.
        uncompressed: what ``live`` holds, uncompressed.
    """

    live: int = 0
    retired: int = 0
    leftovers: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    uncompressed: int = 0


@dataclass(frozen=True)
class Diagnosis:
    """What an examination found.

    Attributes:
        location: the warehouse.
        totals: how much it holds.
        sizes: in bytes.
        segments: how many are needed, and how many of these are packs.
        packs: how many of the segments are packs.
        findings: what is not as it should be.
    """

    location: str
    totals: Totals
    sizes: Sizes
    segments: int
    packs: int
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        """Says whether nothing needs action."""
        return not any(finding.needs_action for finding in self.findings)


def diagnose(folder: Folder, *, deep: bool = False, progress: Progress = silent) -> Diagnosis:
    """Examines a warehouse.

    Args:
        folder: the warehouse.
        deep: reads all of every file; otherwise footers, and the columns that identify rows.
        progress: is told how many segments were read, when deep.

    Raises:
        WarehouseError: the folder cannot be read, changes all the time, or a newer Nightjar wrote to it.
    """
    for _ in range(_TRIES):
        diagnosis = _diagnose(folder, _readable_catalog(folder), deep=deep, progress=progress)
        if diagnosis is not None:
            return diagnosis
    raise WarehouseError(f"The warehouse {folder} changes while it is examined. Try again later.")


def _diagnose(folder: Folder, catalog: Catalog, *, deep: bool, progress: Progress) -> Diagnosis | None:
    """Examines a catalog; None when another process has removed a segment of it meanwhile."""
    undescribed_segments = undescribed(folder)
    needed = [segment for name, segment in sorted(catalog.segments.items()) if name not in catalog.retired]
    faults = list(file_faults(folder, needed))
    if deep:
        faulty = {fault.segment_id for fault in faults}
        faults += page_faults(folder, [segment for segment in needed if segment.segment_id not in faulty], progress)
    sound = _without(catalog, {fault.segment_id for fault in faults})
    totals, row_findings = _examine_rows(folder, sound)
    if not all((folder.segments_path / segment.segment_id).is_dir() for segment in needed):
        return None
    return Diagnosis(
        location=str(folder),
        totals=totals,
        sizes=_sizes(folder, catalog, needed, sound),
        segments=len(needed),
        packs=sum(segment.is_pack for segment in needed),
        findings=[
            *(_description_finding(name, what) for name, what in undescribed_segments.items()),
            *(_file_finding(fault, catalog) for fault in faults),
            *row_findings,
            *_folder_findings(folder, catalog),
        ],
    )


def fix(folder: Folder) -> None:
    """Does what can be done without run directories.

    Writes a missing ``segment.json`` anew, removes what dead processes left and what is retired for some time, and
    writes the database file anew.

    Raises:
        WarehouseError: the folder cannot be written.
    """
    folder.remove_leftovers()
    for path in _leftover_files(folder):
        path.unlink(missing_ok=True)
    mended = [mend(folder, name) for name in undescribed(folder)]
    if all(mended):
        with folder.packing_alone(timeout_seconds=_LOCK_TIMEOUT_SECONDS) as alone:
            if alone:
                remove_retired(folder)
        write_snapshot(folder)


def _readable_catalog(folder: Folder) -> Catalog:
    """The catalog without the segments whose ``segment.json`` cannot be read."""
    segments = []
    for path in folder.segments_path.glob(f"[!.]*/{COMMIT}"):
        with suppress(OSError, WarehouseError):
            segments.append(Segment.load(path.parent.name, path.read_bytes()))
    return Catalog.of(segments)


def _without(catalog: Catalog, names: set[str]) -> Catalog:
    """The catalog of what counts, less some segments; what they replaced does not count again."""
    if not names:
        return catalog
    gone = names | catalog.retired.keys()
    return Catalog.of(segment for name, segment in catalog.segments.items() if name not in gone)


def _description_finding(name: str, what: str) -> Finding:
    return Finding(f"Segment {name!r} does not count: {what}", f"{FIX}, else {REBUILD}")


def _file_finding(fault: Fault, catalog: Catalog) -> Finding:
    runs = sum(holder.segment_id == fault.segment_id for holder in catalog.holders.values())
    what = f"Segment {fault.segment_id!r} ({_number(runs, 'run')}): {fault.kind}.parquet {fault.what}"
    return Finding(what, REBUILD)


def _examine_rows(folder: Folder, sound: Catalog) -> tuple[Totals, list[Finding]]:
    try:
        totals, contradictions = examine(folder, sound)
    except WarehouseError as error:
        return Totals(runs=len(sound.holders)), [
            Finding(str(error), f"nightjar warehouse doctor --deep, then {REBUILD}")
        ]
    return totals, [Finding(f"Run {one.run_id!r}: {one.what}", REBUILD) for one in contradictions]


def _folder_findings(folder: Folder, catalog: Catalog) -> Iterator[Finding]:
    leftovers = [*folder.leftovers(), *_leftover_files(folder)]
    if leftovers:
        what = f"{_number(len(leftovers), 'leftover')} of killed processes, {_megabytes(map(_length, leftovers))}"
        yield Finding(what, FIX, needs_action=False)
    for path in _unknown(folder):
        yield Finding(f"{path} is not Nightjar's", "remove it, if nobody needs it", needs_action=False)
    for path in sorted((folder.path / SET_ASIDE).glob("*")):
        what = f"{path} was damaged and set aside by a rebuild"
        yield Finding(what, "publish its runs from wherever they are, then remove it", needs_action=False)
    small = [segment for segment in catalog.live.values() if segment.rows["rollouts"] < LARGE_ROLLOUTS]
    if len(small) > _MANY_SMALL:
        yield Finding(f"{len(small):,} small segments slow queries down", COMPACT, needs_action=False)
    fault = snapshot_fault(folder, catalog) if catalog.segments else None
    if fault is not None:
        yield Finding(f"{folder.path / NAME} {fault.what}", FIX, needs_action=not fault.is_usable)


def _leftover_files(folder: Folder) -> list[Path]:
    """Files that were written beside, to replace another, and never did."""
    old = time.time() - _LEFTOVER_AFTER_SECONDS
    return [path for pattern in _LEFTOVERS for path in sorted(folder.path.glob(pattern)) if path.lstat().st_mtime < old]


def _unknown(folder: Folder) -> Iterator[Path]:
    for path in sorted(folder.path.glob("*")):
        if path.name not in _OWN_NAMES and not any(path.match(pattern) for pattern in _OWN_PATTERNS):
            yield path
    known = {COMMIT, *(f"{kind}.parquet" for kind in KINDS)}
    for path in sorted(folder.segments_path.glob("*")):
        if not path.is_dir():
            yield path
        elif not path.name.startswith("."):
            yield from (file for file in sorted(path.glob("*")) if file.name not in known)


def _sizes(folder: Folder, catalog: Catalog, needed: Sequence[Segment], sound: Catalog) -> Sizes:
    return Sizes(
        live=sum(segment.size for segment in needed),
        retired=sum(segment.size for segment in catalog.retired.values()),
        leftovers=sum(map(_length, [*folder.leftovers(), *_leftover_files(folder)])),
        kinds={kind: sum(segment.sizes[kind] for segment in needed) for kind in KINDS},
        uncompressed=uncompressed_bytes(folder, [one for one in needed if one.segment_id in sound.segments]),
    )


def _length(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.lstat().st_size
    return total


def _megabytes(lengths: Iterable[int]) -> str:
    return f"{sum(lengths) / 1e6:,.1f} MB"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
