"""``nightjar warehouse info``, ``doctor``, ``rebuild``, ``compact`` and ``prune``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal as size

from nightjar.cli.options import JsonOption, WarehouseOption, YesOption, argument, option
from nightjar.cli.output import print_json, print_labelled, print_some, progress_of
from nightjar.cli.sql.output import print_records
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import open_folder, open_store
from nightjar.core.text import counted
from nightjar.importers import default_paths, find_run_directories
from nightjar.warehouse import pruning, repair
from nightjar.warehouse.doctor import Diagnosis, diagnose
from nightjar.warehouse.pruning import Candidate, Criteria, candidates, parse_age
from nightjar.warehouse.reading.reader import ask_once
from nightjar.warehouse.repair import Fixed, RebuildReport
from nightjar.warehouse.repair import fix as fix_folder
from nightjar.warehouse.storage.segments import Catalog
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.packing import RETIRED_FOR, pack_everything

_SUMMARY = """
SELECT
    (SELECT count(*) FROM segments.runs) AS runs,
    (SELECT count(*) FROM segments.rollouts) AS rollouts,
    (
        SELECT {'run_id': run_id, 'env_id': env_id, 'model': model, 'status': status, 'started_at': started_at}
        FROM segments.runs ORDER BY started_at DESC NULLS LAST, run_id LIMIT 1
    ) AS newest_run
"""


def warehouse(context: typer.Context) -> None:
    """Manage the warehouse, which holds all published runs. Without a command, show what the warehouse contains.

    Example: nightjar warehouse doctor
    """
    if context.invoked_subcommand is None:
        info()


def info(warehouse: WarehouseOption = None, as_json: JsonOption = False) -> None:
    """Show the location and size of the warehouse, and its newest run.

    Example: nightjar warehouse info --json
    """
    (print_json if as_json else _print_summary)(_summary(open_store(warehouse)))


def _summary(store: Store) -> dict[str, Any]:
    [found] = ask_once(store, _SUMMARY).records()
    catalog = store.catalog()
    return {
        "location": str(store),
        **found,
        "segments": len(catalog.live),
        "bytes": sum(segment.size for segment in catalog.needed.values()),
        "retired_bytes": sum(segment.size for segment in catalog.retired.values()),
    }


def _print_summary(record: dict[str, Any]) -> None:
    retired = f", and {size(record['retired_bytes'])} to be removed" if record["retired_bytes"] else ""
    newest_run = ""
    if newest := record["newest_run"]:
        started = f", {newest['started_at']:%Y-%m-%d %H:%M} UTC" if newest["started_at"] else ""
        newest_run = f"{newest['run_id']}: {newest['env_id']} | {newest['model']}, {newest['status']}{started}"
    print_labelled(
        {
            "Warehouse": record["location"],
            "Holds": f"{counted(record['runs'], 'run')}, {counted(record['rollouts'], 'rollout')}",
            "Size": f"{size(record['bytes'])} in {counted(record['segments'], 'segment')}{retired}",
            "Newest run": newest_run,
        }
    )
    echo("Next:       nightjar sql 'FROM leaderboard' | nightjar warehouse doctor", err=True)


def doctor(
    deep: Annotated[bool, option("Read all data, not only its metadata.", "--deep")] = False,
    fix: Annotated[
        bool, option("First set damaged files aside, restore their runs, and remove leftovers.", "--fix")
    ] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the warehouse for damage, size and leftovers, and say what to do.

    The exit code is 1 if anything needs action. No data that may be needed is deleted: damaged files are moved to the
    folder 'damaged' of the warehouse. Damaged runs without a local run directory are listed until they are published.

    Example: nightjar warehouse doctor --deep
    """
    folder = open_folder(warehouse)
    with progress_of("Reading segments") as progress:
        fixed = fix_folder(folder, deep=deep, progress=progress) if fix else None
        diagnosis = diagnose(folder, deep=deep, progress=progress)
    if as_json:
        print_json({"is_clean": diagnosis.is_clean, **vars(diagnosis), **({"fixed": fixed} if fixed else {})})
    else:
        if fixed:
            _print_fixed(fixed)
        _print_diagnosis(diagnosis)
    if not diagnosis.is_clean:
        raise typer.Exit(1)


def _print_fixed(fixed: Fixed) -> None:
    for name, path in fixed.set_aside.items():
        kept = "; its examples are kept" if name in fixed.examples_kept else ""
        echo(f"Set aside: segment {name!r} is damaged and was moved to {path}{kept}")
    for run_id in fixed.published:
        echo(f"Published again: run {run_id!r}")
    for run_dir, why in fixed.failures.items():
        echo(f"Not read: {run_dir}: {why}", err=True)
    if fixed.set_aside:
        echo()


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    sizes = diagnosis.sizes
    counts = ", ".join(counted(count, noun.removesuffix("s")) for noun, count in diagnosis.totals.items())
    kinds = ", ".join(f"{kind} {size(count)}" for kind, count in sizes.kinds.items())
    print_labelled(
        {
            "Warehouse": diagnosis.location,
            "Holds": counts,
            "Segments": f"{diagnosis.segments:,}, {counted(diagnosis.packs, 'pack')} among them",
            "Size": f"{size(sizes.live)} ({kinds})",
            "Retired": size(sizes.retired),
            "Leftovers": size(sizes.leftovers),
        }
    )
    urgent = [finding for finding in diagnosis.findings if finding.needs_action]
    others = [finding for finding in diagnosis.findings if not finding.needs_action]
    for title, chosen in (("Needs action", urgent), ("Good to know", others)):
        if chosen:
            echo(f"\n{title}:")
            print_some([f"{finding.what}\n    → {finding.remedy}" for finding in chosen])
    echo(f"\n{counted(len(urgent), 'finding')} to act on." if urgent else "\nAll is well.")


def rebuild(
    paths: Annotated[
        list[Path] | None, argument("Folders of run directories (default: outputs, environments/*/outputs).")
    ] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the whole warehouse from run directories.

    Prices are kept, and so are runs without a local run directory, for instance runs from other machines. Damaged run
    directories are reported at the end. The warehouse stays readable and writable, even if the rebuild is interrupted.
    Pruned runs return if their run directories still exist.

    Example: nightjar warehouse rebuild outputs /archive/2025
    """
    run_dirs = find_run_directories(paths or default_paths())
    folder = open_folder(warehouse, must_exist=False)
    folder.try_to_write()
    with progress_of("Reading run directories") as progress:
        report = repair.rebuild(folder, run_dirs, progress)
    if as_json:
        print_json(report)
    else:
        _print_rebuilt(str(folder), report)
    if not report.is_whole:
        raise typer.Exit(1)


def _print_rebuilt(location: str, report: RebuildReport) -> None:
    echo(
        f"Rebuilt {location} from run directories: {counted(report.published, 'run')}, "
        f"{counted(report.rollouts, 'rollout')}, {report.seconds:.1f} s"
    )
    if report.kept:
        echo(f"Kept {counted(len(report.kept), 'run')} unchanged:")
        print_some([f"{run_id}: {why}" for run_id, why in report.kept.items()])
    for run_dir, why in report.failures.items():
        echo(f"Not read: {run_dir}: {why}", err=True)
    for segment in report.set_aside:
        echo(f"Set aside: segment {segment!r} is damaged and was moved to {location}/damaged", err=True)
    if report.lost:
        echo(f"Lost: {counted(len(report.lost), 'run')} of damaged segments: {', '.join(report.lost)}", err=True)


def compact(
    now: Annotated[bool, option("Remove replaced segments at once, not after an hour.", "--now")] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge all small segments, so that queries open fewer files. Publishing does this automatically when needed.

    The warehouse stays readable and writable. Replaced segments stay for an hour for readers that still use them, and
    are removed by the next publish after that.

    Example: nightjar warehouse compact
    """
    store = open_store(warehouse)
    before = _held(store.catalog())
    packs = pack_everything(store, timedelta(0) if now else RETIRED_FOR)
    catalog = store.catalog()
    after, retired = _held(catalog), sum(segment.size for segment in catalog.retired.values())
    if as_json:
        print_json({"packs": packs, "before": before, "after": after, "retired_bytes": retired})
        return
    echo(" → ".join(f"{counted(one['segments'], 'segment')}, {size(one['bytes'])}" for one in (before, after)))
    if retired:
        echo(f"{size(retired)} of replaced segments are removed after an hour; --now removes them at once", err=True)


def _held(catalog: Catalog) -> dict[str, int]:
    return {"segments": len(catalog.needed), "bytes": sum(segment.size for segment in catalog.needed.values())}


def prune(
    older_than: Annotated[
        str | None, option("Only runs that started longer ago than this, such as 12h, 180d, 26w or 2y.")
    ] = None,
    env: Annotated[str | None, option("Only runs of this environment.")] = None,
    model: Annotated[str | None, option("Only runs of this model.")] = None,
    status: Annotated[str | None, option("Only running, completed, incomplete, failed or cancelled runs.")] = None,
    keep_last: Annotated[
        int, option("Number of runs to keep for each environment and model, the newest first.", min=0)
    ] = 0,
    dry_run: Annotated[bool, option("Only show the runs to remove.", "--dry-run")] = False,
    yes: YesOption = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove runs from the warehouse. Their run directories stay; publishing a run again restores it.

    A run is removed if it meets all given conditions.

    Example: nightjar warehouse prune --older-than 180d --keep-last 5 --dry-run
    """
    if not any((older_than, env, model, status, keep_last)):
        raise typer.BadParameter("select runs with --older-than, --env, --model, --status or --keep-last")
    before = datetime.now(UTC) - parse_age(older_than) if older_than else None
    store = open_store(warehouse)
    found = candidates(store, Criteria(before, env, model, status, keep_last))
    if found and not as_json:
        _print_candidates(found)
    is_wanted = bool(found) and not dry_run and _is_confirmed(len(found), yes=yes)
    if is_wanted:
        pruning.prune(store, [candidate.run_id for candidate in found])
    if as_json:
        print_json({"removed": is_wanted, "runs": found})
    elif is_wanted:
        echo(f"Removed {counted(len(found), 'run')} from {store}. To restore: nightjar publish RUN_DIRECTORY", err=True)
    else:
        echo("Nothing was removed." if found else "No run meets the conditions: nothing was removed.", err=True)


def _print_candidates(found: list[Candidate]) -> None:
    names = ("run_id", "env_id", "model", "status")
    print_records(
        [
            {**{name: getattr(one, name) for name in names}, "started": one.started_at.date(), "rollouts": one.rollouts}
            for one in found
        ]
    )
    rollouts, total = sum(one.rollouts for one in found), sum(one.bytes for one in found)
    echo(f"{counted(len(found), 'run')}, {counted(rollouts, 'rollout')}, about {size(total)}")


def _is_confirmed(count: int, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is not a terminal: confirm with --yes, or use --dry-run to see the runs")
    return typer.confirm(f"Remove {counted(count, 'run')} from the warehouse?", err=True)
