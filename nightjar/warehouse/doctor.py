"""Diagnoses a warehouse: damage, contradictions, sizes, foreign files, and the remedies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained, reason, scratch_connection
from nightjar.warehouse.reading.reader import listed
from nightjar.warehouse.reading.relations import define
from nightjar.warehouse.reading.snapshot import NAME
from nightjar.warehouse.repair import (
    SET_ASIDE,
    AsideRun,
    described_segments,
    file_faults,
    missing_from,
    older_in,
    run_dirs_of,
    runs_in,
)
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.records import LINE_FILES, NIGHTS, PRICES_NAME, Records
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog
from nightjar.warehouse.storage.store import Fault
from nightjar.warehouse.writing.packing import FAN_IN, LARGE_ROLLOUTS, outdated
from nightjar.warehouse.writing.publishing import Progress, silent

_TRIES = 5
_MANY_SMALL = 4 * FAN_IN
_FEW, _MANY = 3, 10
_OWN_NAMES = {"segments", NAME, f"{NAME}.wal", PRICES_NAME, SET_ASIDE, *(file.file_name for file in LINE_FILES)}

_VERSIONS = "SELECT run_id, version FROM segments.runs"

_TOTALS = """
SELECT
    (SELECT count(*) FROM segments.runs),
    (SELECT count(*) FROM segments.rollouts),
    (SELECT count(*) FROM segments.attempts),
    (SELECT count(DISTINCT content_id) FROM segments.examples)
"""

_CONTRADICTIONS = """
SELECT run_id, what, run_dir FROM (
SELECT run_id, count(*) || ' rollouts are there several times' AS what FROM (
    SELECT run_id FROM segments.rollouts GROUP BY run_id, example_id, rollout_index HAVING count(*) > 1
) GROUP BY run_id
UNION ALL
SELECT run_id, count(*) || ' rollouts have lost the content of their example'
FROM segments.rollouts ANTI JOIN segments.examples USING (content_id) GROUP BY run_id
UNION ALL
SELECT run_id, 'its aggregates are of ' || (scored + failed) || ' rollouts, but it has ' || coalesce(found, 0)
FROM segments.runs
LEFT JOIN (SELECT run_id, count(*) AS found FROM segments.rollouts GROUP BY run_id) USING (run_id)
WHERE status <> 'running' AND scored + failed <> coalesce(found, 0)
UNION ALL
SELECT run_id, count(*) || ' ' || kind || ' of a run that is not there' FROM (
    SELECT run_id, 'rollouts' AS kind FROM segments.rollouts UNION ALL SELECT run_id, 'attempts' FROM segments.attempts
) ANTI JOIN segments.runs USING (run_id) GROUP BY run_id, kind
) LEFT JOIN segments.runs USING (run_id)
ORDER BY ALL
"""


@dataclass(frozen=True)
class Finding:
    """A problem and its remedy; a finding that needs no action is harmless or disappears by itself."""

    what: str
    remedy: str
    needs_action: bool = True
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sizes:
    live: int = 0
    retired: int = 0
    leftovers: int = 0
    kinds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Diagnosis:
    """The state of a warehouse. ``totals`` counts the current rows by kind."""

    location: str
    totals: dict[str, int]
    sizes: Sizes
    segments: int
    packs: int
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        return not any(finding.needs_action for finding in self.findings)


def diagnose(folder: Folder, *, deep: bool = False, progress: Progress = silent) -> Diagnosis:
    """Examines footers and the columns that identify rows. With ``deep``, examines every file completely."""
    for _ in range(_TRIES):
        catalog, faults = described_segments(folder)
        faults += file_faults(folder, catalog, deep=deep, progress=progress)
        diagnosis = _diagnosis(folder, catalog, faults, deep=deep)
        examined = {*catalog.needed, *(fault.segment_id for fault in faults)}
        if all((folder.segments_path / name).is_dir() for name in examined):
            return diagnosis
    raise WarehouseError(f"The warehouse {folder} changes while it is examined. Try again later.")


def _diagnosis(folder: Folder, catalog: Catalog, faults: Sequence[Fault], *, deep: bool) -> Diagnosis:
    faulty = {fault.segment_id for fault in faults}
    sound = Catalog.of(one for name, one in catalog.needed.items() if name not in faulty) if faulty else catalog
    totals, row_findings = _examine_rows(folder, sound, deep=deep)
    needed, left = catalog.needed.values(), folder.leftovers()
    return Diagnosis(
        location=str(folder),
        totals=totals,
        sizes=Sizes(
            live=sum(segment.size for segment in needed),
            retired=sum(segment.size for segment in catalog.retired.values()),
            leftovers=sum(map(_length, left)),
            kinds={kind: sum(segment.sizes[kind] for segment in needed) for kind in KINDS},
        ),
        segments=len(needed),
        packs=sum(segment.is_pack for segment in needed),
        findings=[
            *(_file_finding(folder, catalog, fault) for fault in faults),
            *_record_findings(folder),
            *row_findings,
            *_aside_findings(folder, catalog),
            *_stray_findings(folder, left),
            *_compact_findings(folder, catalog),
            *([] if faulty or not catalog.segments else _snapshot_findings(folder, catalog)),
        ],
    )


def _file_finding(folder: Folder, catalog: Catalog, fault: Fault) -> Finding:
    runs = tuple(sorted(name for name, holder in catalog.holders.items() if holder.segment_id == fault.segment_id))
    what = f"Segment {fault.segment_id!r} ({listed(runs)}): {fault.file} {fault.what}"
    if fault.file == COMMIT and fault.segment_id not in catalog.segments:
        what = f"Segment {fault.segment_id!r} is ignored: {fault.file} {fault.what}"
    if not fault.is_damage:
        return Finding(what, "give yourself the right to read it, or check the disk", runs=runs)
    return Finding(what, folder.command("doctor --fix --deep" if fault.is_hidden else "doctor --fix"), runs=runs)


def _examine_rows(folder: Folder, sound: Catalog, *, deep: bool) -> tuple[dict[str, int], list[Finding]]:
    try:
        with (
            explained(f"Cannot read the warehouse {folder}"),
            scratch_connection("2GB") as connection,
        ):
            define(connection, sound, folder.file, Records())
            [totals] = connection.execute(_TOTALS).fetchall()
            contradictions = connection.execute(_CONTRADICTIONS).fetchall()
    except WarehouseError as error:
        remedy = _rebuild_command(folder, []) if deep else folder.command("doctor --deep")
        return {**dict.fromkeys(KINDS, 0), "runs": len(sound.holders)}, [Finding(str(error), remedy)]
    return dict(zip(KINDS, totals, strict=True)), [
        Finding(
            f"Run {run_id!r}: {what}",
            _rebuild_command(folder, run_dirs_of([AsideRun(run_dir=run_dir)])),
            runs=(run_id,),
        )
        for run_id, what, run_dir in contradictions
    ]


def _rebuild_command(folder: Folder, run_dirs: Sequence[str]) -> str:
    return folder.command(f"rebuild {_places(run_dirs) or 'FOLDER…'}")


def _publish_command(folder: Folder, run_dirs: Sequence[str]) -> str:
    if len(run_dirs) == 1:
        return f"nightjar publish {shlex.quote(run_dirs[0])} --warehouse {shlex.quote(str(folder))}"
    return folder.command(f"import {_places(run_dirs) or 'RUN_DIR…'}")


def _places(run_dirs: Sequence[str]) -> str:
    named = run_dirs if len(run_dirs) <= _MANY else sorted({str(Path(path).parent) for path in run_dirs})
    return " ".join(map(shlex.quote, named))


def _record_findings(folder: Folder) -> Iterator[Finding]:
    try:
        folder.prices()
    except WarehouseError as error:
        again = folder.command("prices set MODEL --input PRICE --output PRICE")
        yield Finding(str(error), f"repair this line in an editor; or remove the file, then for each model: {again}")
    for file in LINE_FILES:
        try:
            folder.rows(file)
        except WarehouseError as error:
            again = ": the next start of that night writes it again" if file is NIGHTS else ""
            yield Finding(str(error), f"remove this line in an editor{again}")


def _aside_findings(folder: Folder, catalog: Catalog) -> Iterator[Finding]:
    for path in sorted((folder.path / SET_ASIDE).glob("*")):
        runs = runs_in(path)
        where = f"since a damaged segment was set aside: {path}"
        missing, older = missing_from(catalog, runs), older_in(catalog, runs)
        if not runs:
            remedy = f"{_rebuild_command(folder, [])} with all run directories, then remove what was set aside"
            yield Finding(f"An unknown run is missing {where}", remedy)
        if missing:
            what = f"{_capital(listed(missing))} {'is' if len(missing) == 1 else 'are'} missing {where}"
            yield Finding(what, _publish_remedy(folder, missing), runs=tuple(sorted(missing)))
        if older:
            what = f"{_capital(listed(older))} count{'s' * (len(older) == 1)} with an older version {where}"
            remedy = f"{_publish_remedy(folder, older)}; or accept it, and remove {path}"
            yield Finding(what, remedy, runs=tuple(sorted(older)))
        if runs and not missing and not older:
            what = f"{path} was damaged and set aside; all its runs were published again"
            yield Finding(what, "remove it", needs_action=False, runs=tuple(sorted(runs)))


def _publish_remedy(folder: Folder, runs: Mapping[str, AsideRun]) -> str:
    here = run_dirs_of(runs.values())
    if len(here) == len(runs):
        return _publish_command(folder, here)
    elsewhere = sorted(run.run_dir or f"of {run_id!r}" for run_id, run in runs.items() if not run.is_here)
    named = ", ".join(elsewhere[:_FEW]) + (" …" if len(elsewhere) > _FEW else "")
    return (
        f"{_publish_command(folder, here or ['RUN_DIR'])}{', and' if here else ', for'} the run directory {named}, "
        "from the place where it is now. If it no longer exists, remove the files that were set aside"
    )


def _stray_findings(folder: Folder, left: Sequence[Path]) -> Iterator[Finding]:
    if left:
        megabytes = sum(map(_length, left)) / 1e6
        what = f"{len(left):,} leftover{'s' * (len(left) > 1)} of killed processes, {megabytes:,.1f} MB"
        yield Finding(what, folder.command("doctor --fix"), needs_action=False)
    known = {COMMIT, *(f"{kind}.parquet" for kind in KINDS)}
    top = [path for path in folder.path.glob("[!.]*") if path.name not in _OWN_NAMES and path.suffix != ".lock"]
    files = [path for path in folder.segments_path.glob("[!.]*") if not path.is_dir()]
    within = [path for path in folder.segments_path.glob("[!.]*/*") if path.name not in known]
    for path in sorted([*top, *files, *within]):
        yield Finding(f"{path} was not written by Nightjar", "remove it, if nobody needs it", needs_action=False)


def _compact_findings(folder: Folder, catalog: Catalog) -> Iterator[Finding]:
    small = [segment for segment in catalog.live.values() if segment.rows["rollouts"] < LARGE_ROLLOUTS]
    if len(small) > _MANY_SMALL:
        what = f"{len(small):,} small segments slow queries down"
        yield Finding(what, folder.command("compact"), needs_action=False)
    if runs := outdated(catalog):
        packs = [catalog.segments[name] for name in runs]
        gain = sum(pack.size * runs[pack.segment_id] / len(pack.versions) for pack in packs)
        total = sum(runs.values())
        subject = "1 run in large packs was" if total == 1 else f"{total:,} runs in large packs were"
        what = f"{subject} published again: packing would free about {gain / 1e6:,.1f} MB"
        yield Finding(what, folder.command("compact"), needs_action=False)


def _snapshot_findings(folder: Folder, catalog: Catalog) -> Iterator[Finding]:
    path, remedy = folder.path / NAME, folder.command("doctor --fix")
    if Path(f"{path}.wal").exists():
        yield Finding(f"{path} has a write-ahead file beside it, left by a program that wrote to it", remedy)
        return
    if not path.is_file():
        yield Finding(f"{path} is missing", remedy)
        return
    try:
        with closing(duckdb.connect(str(path), read_only=True)) as connection:
            shown = dict(connection.execute(_VERSIONS).fetchall())
    except (duckdb.Error, OSError) as error:
        yield Finding(f"{path} cannot be used: {reason(error) if isinstance(error, duckdb.Error) else error}", remedy)
        return
    if shown != {run_id: segment.versions[run_id] for run_id, segment in catalog.holders.items()}:
        yield Finding(f"{path} does not show the newest runs", remedy, needs_action=False)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _length(path: Path) -> int:
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):
            total += file.lstat().st_size
    return total
