"""Examines a warehouse: is it whole, how large is it, what does not belong there, and what is to be done?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nightjar.errors import WarehouseError
from nightjar.warehouse.doctor.aside import aside_findings
from nightjar.warehouse.doctor.files import file_faults, page_faults
from nightjar.warehouse.doctor.findings import (
    COMPACT,
    DEEP,
    FIX,
    FIX_DEEP,
    Finding,
    known_here,
    number,
    rebuild_command,
)
from nightjar.warehouse.doctor.mending import undescribed
from nightjar.warehouse.doctor.prices import price_findings
from nightjar.warehouse.doctor.rows import Contradiction, Totals, examine
from nightjar.warehouse.doctor.sizes import Sizes, measure
from nightjar.warehouse.doctor.snapshot import snapshot_fault
from nightjar.warehouse.doctor.strays import leftovers, stray_findings
from nightjar.warehouse.reading.damage import Fault, listed
from nightjar.warehouse.reading.snapshot import NAME
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import COMMIT, Catalog, Segment
from nightjar.warehouse.writing.bulk import Progress, silent
from nightjar.warehouse.writing.packing import FAN_IN, LARGE_ROLLOUTS, outdated

_TRIES = 5
_MANY_SMALL = 4 * FAN_IN


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
    faults = _faults(folder, needed, deep=deep, progress=progress)
    faulty = {fault.segment_id for fault in faults}
    sound = _without(catalog, faulty)
    totals, row_findings = _examine_rows(folder, sound, deep=deep)
    left = leftovers(folder)
    examined = [*(segment.segment_id for segment in needed), *undescribed_segments]
    if not all((folder.segments_path / name).is_dir() for name in examined):
        return None
    return Diagnosis(
        location=str(folder),
        totals=totals,
        sizes=measure(folder, catalog, [one for one in needed if one.segment_id not in faulty], left),
        segments=len(needed),
        packs=sum(segment.is_pack for segment in needed),
        findings=[
            *(_description_finding(folder, name, what) for name, what in undescribed_segments.items()),
            *(_file_finding(folder, catalog, fault) for fault in faults),
            *price_findings(folder),
            *row_findings,
            *aside_findings(folder, catalog),
            *stray_findings(folder),
            *_small_findings(folder, catalog),
            *_outdated_findings(folder, catalog),
            *_snapshot_findings(folder, catalog, sound),
        ],
    )


def _faults(folder: Folder, needed: Sequence[Segment], *, deep: bool, progress: Progress) -> list[Fault]:
    faults = list(file_faults(folder, needed))
    if deep:
        faulty = {fault.segment_id for fault in faults}
        faults += page_faults(folder, [segment for segment in needed if segment.segment_id not in faulty], progress)
    return faults


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


def _description_finding(folder: Folder, name: str, what: str) -> Finding:
    return Finding(f"Segment {name!r} does not count: {what}", folder.command(FIX))


def _file_finding(folder: Folder, catalog: Catalog, fault: Fault) -> Finding:
    runs = tuple(sorted(name for name, holder in catalog.holders.items() if holder.segment_id == fault.segment_id))
    what = f"Segment {fault.segment_id!r} ({listed(runs)}): {fault.kind}.parquet {fault.what}"
    if not fault.is_damage:
        return Finding(what, "give yourself the right to read it, or look after the disk", runs=runs)
    return Finding(what, folder.command(FIX_DEEP if fault.is_hidden else FIX), runs=runs)


def _examine_rows(folder: Folder, sound: Catalog, *, deep: bool) -> tuple[Totals, list[Finding]]:
    try:
        totals, contradictions = examine(folder, sound)
    except WarehouseError as error:
        remedy = rebuild_command(folder, []) if deep else folder.command(DEEP)
        return Totals(runs=len(sound.holders)), [Finding(str(error), remedy)]
    return totals, [_row_finding(folder, contradiction) for contradiction in contradictions]


def _row_finding(folder: Folder, found: Contradiction) -> Finding:
    rebuild = rebuild_command(folder, known_here([found.run_dir]))
    remedy = folder.command(FIX) if found.is_of_description else rebuild
    return Finding(f"Run {found.run_id!r}: {found.what}", remedy, runs=(found.run_id,))


def _small_findings(folder: Folder, catalog: Catalog) -> Iterator[Finding]:
    small = [segment for segment in catalog.live.values() if segment.rows["rollouts"] < LARGE_ROLLOUTS]
    if len(small) > _MANY_SMALL:
        what = f"{len(small):,} small segments slow queries down"
        yield Finding(what, folder.command(COMPACT), needs_action=False)


def _outdated_findings(folder: Folder, catalog: Catalog) -> Iterator[Finding]:
    runs = outdated(catalog)
    if runs:
        packs = [catalog.segments[name] for name in runs]
        gain = sum(pack.size * runs[pack.segment_id] / len(pack.versions) for pack in packs)
        count = sum(runs.values())
        were = "was" if count == 1 else "were"
        what = f"{number(count, 'run')} in large packs {were} published again: about {gain / 1e6:,.1f} MB to gain"
        yield Finding(what, folder.command(COMPACT), needs_action=False)


def _snapshot_findings(folder: Folder, catalog: Catalog, sound: Catalog) -> Iterator[Finding]:
    """Yields what is wrong with the database file, unless that is the damage of a segment that it shows."""
    if not catalog.segments or sound is not catalog:
        return
    fault = snapshot_fault(folder, catalog)
    if fault is not None:
        yield Finding(f"{folder.path / NAME} {fault.what}", folder.command(FIX), needs_action=not fault.is_usable)
