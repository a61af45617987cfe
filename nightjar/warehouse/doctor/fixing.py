"""Mends what needs no run directory, so that the warehouse can be used again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nightjar.errors import WarehouseError
from nightjar.warehouse.doctor.files import file_faults, page_faults
from nightjar.warehouse.doctor.mending import keep_examples, mend, set_aside, undescribed
from nightjar.warehouse.doctor.rows import versions_in
from nightjar.warehouse.doctor.strays import remove_leftovers
from nightjar.warehouse.reading.damage import digest_fault
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import KINDS, Segment, is_pack_id
from nightjar.warehouse.writing.bulk import Progress, silent
from nightjar.warehouse.writing.packing import alone_in, remove_retired


@dataclass
class Fixed:
    """What was mended.

    Attributes:
        described: segments whose ``segment.json`` was written anew.
        set_aside: damaged segments to where they were moved; they do not count any more.
        examples_kept: those of them whose examples are there still, because later segments rely on them.
    """

    described: list[str] = field(default_factory=list)
    set_aside: dict[str, Path] = field(default_factory=dict)
    examples_kept: list[str] = field(default_factory=list)


def fix(folder: Folder, *, deep: bool = False, progress: Progress = silent) -> Fixed:
    """Does what can be done without run directories.

    Writes a missing or damaged ``segment.json`` anew, moves segments that cannot be read to the folder ``damaged``,
    removes what dead processes left and what is retired for some time, and writes the database file anew. Nobody packs
    or prunes meanwhile.

    Args:
        folder: the warehouse.
        deep: looks for damage in all of every file, not in its length and footer alone.
        progress: is told how many segments were read, when deep.

    Raises:
        WarehouseError: another process is packing, the folder cannot be written, or a newer Nightjar wrote to it.
    """
    fixed = Fixed()
    with alone_in(folder):
        remove_leftovers(folder)
        _mend_undescribed(folder, fixed)
        _mend_damaged(folder, fixed, deep=deep, progress=progress)
        remove_retired(folder)
    write_snapshot(folder)
    return fixed


def _mend_undescribed(folder: Folder, fixed: Fixed) -> None:
    for name in undescribed(folder):
        if mend(folder, name):
            fixed.described.append(name)
        else:
            _move(folder, name, fixed, keeps_examples=is_pack_id(name))


def _mend_damaged(folder: Folder, fixed: Fixed, *, deep: bool, progress: Progress) -> None:
    segments = dict(folder.catalog().segments)
    faults = list(file_faults(folder, segments.values()))
    if deep:
        faulty = {fault.segment_id for fault in faults}
        whole = [segment for name, segment in segments.items() if name not in faulty]
        faults += page_faults(folder, whole, progress)
    damage: dict[str, set[str]] = defaultdict(set)
    for fault in faults:
        if fault.is_damage:
            damage[fault.segment_id].add(fault.kind)
    for name in sorted(damage.keys() | _misdescribed(folder, segments, damage.keys())):
        if _is_as_written(folder, segments[name]):  # so segment.json is not
            if mend(folder, name, segments[name].replaces):
                fixed.described.append(name)
        else:
            _move(folder, name, fixed, keeps_examples=segments[name].is_pack and "examples" not in damage[name])


def _misdescribed(folder: Folder, segments: Mapping[str, Segment], damaged: Collection[str]) -> set[str]:
    """Names of segments whose ``segment.json`` has other versions of runs than their files have, if these are whole."""
    with suppress(WarehouseError):
        found = versions_in(folder, [name for name in segments if name not in damaged])
        return {name for name, versions in found.items() if versions != segments[name].versions}
    return set()


def _is_as_written(folder: Folder, segment: Segment) -> bool:
    return all(kind in segment.digests and digest_fault(folder, segment, kind) is None for kind in KINDS)


def _move(folder: Folder, name: str, fixed: Fixed, *, keeps_examples: bool) -> None:
    if not (folder.segments_path / name).is_dir():  # somebody has removed it meanwhile
        return
    path = set_aside(folder, name)
    fixed.set_aside[name] = path
    if keeps_examples and keep_examples(folder, name, path):
        fixed.examples_kept.append(name)
