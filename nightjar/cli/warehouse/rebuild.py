"""``nightjar warehouse rebuild`` and ``import``: run directories into the warehouse, many at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.warehouse.location import JsonOption, WarehouseOption, open_folder, open_store

if TYPE_CHECKING:
    from nightjar.adapters.results import Imported
    from nightjar.warehouse.rebuilding import RebuildReport

_FEW = 20


def rebuild(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders with run directories, at any depth (default: outputs and environments/*/outputs).",
            show_default=False,
        ),
    ] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the whole warehouse anew from run directories.

    Runs that have no run directory here, for instance from other machines, stay as they are, and so do the prices. A
    damaged run directory is reported at the end. People go on reading and publishing meanwhile, and whenever it is
    stopped the warehouse is whole. Runs that were pruned come back when their run directories are still there.

    Example: nightjar warehouse rebuild outputs /archive/2025
    """
    from nightjar.adapters.results import default_paths, find_run_directories
    from nightjar.cli.warehouse.output import print_json, progress_of
    from nightjar.warehouse.rebuilding import rebuild as rebuild_from

    run_dirs = find_run_directories(paths or default_paths())
    folder = open_folder(warehouse, must_exist=False)
    folder.try_to_write()
    with progress_of("Reading run directories") as progress:
        report = rebuild_from(folder, run_dirs, progress)
    if as_json:
        print_json(report)
    else:
        _print_rebuilt(str(folder), report)
    if not report.is_whole:
        raise typer.Exit(1)


def import_results(
    paths: Annotated[list[Path], typer.Argument(help="Folders or files with results, at any depth.")],
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish results from elsewhere: run directories of Nightjar, results of verifiers, bundles of NeMo Evaluator.

    They stay where they are. Importing again changes nothing; one that cannot be read does not stop the others.

    Example: nightjar warehouse import ../old-project/outputs results/eval-20260101.json
    """
    from nightjar.adapters.results import import_all
    from nightjar.cli.warehouse.output import print_json, progress_of
    from nightjar.warehouse import Warehouse, resolve_warehouse

    store = open_store(warehouse, must_exist=False)
    store.check_writable()
    with progress_of("Importing") as progress:
        imported = list(import_all(Warehouse(resolve_warehouse(warehouse)), paths, progress))
    if as_json:
        print_json(imported)
    else:
        _print_imported(str(store), imported)
    if any(one.error for one in imported):
        raise typer.Exit(1)


def _print_rebuilt(location: str, report: RebuildReport) -> None:
    from nightjar.cli.warehouse.output import number

    typer.echo(
        f"Rebuilt {location} from run directories: {number(report.published, 'run')}, "
        f"{number(report.rollouts, 'rollout')}, {report.seconds:.1f} s"
    )
    if report.kept:
        typer.echo(f"Kept {number(len(report.kept), 'run')} as before:")
        _print_some([f"{run_id}: {why}" for run_id, why in report.kept.items()])
    for run_dir, why in report.failures.items():
        typer.echo(f"Not read: {run_dir}: {why}", err=True)
    for segment in report.set_aside:
        typer.echo(f"Set aside: segment {segment!r} is damaged; it is in {location}/damaged now", err=True)
    if report.lost:
        typer.echo(f"Lost: {number(len(report.lost), 'run')} of damaged segments: {', '.join(report.lost)}", err=True)


def _print_some(lines: list[str]) -> None:
    for line in lines[:_FEW]:
        typer.echo(f"  {line}")
    if len(lines) > _FEW:
        typer.echo(f"  … and {len(lines) - _FEW:,} more: --json shows all")


def _print_imported(location: str, imported: list[Imported]) -> None:
    from nightjar.cli.warehouse.output import number, print_table

    rows = [
        (one.run_id, one.kind, one.env_id, one.model, one.rollouts, one.novelty) for one in imported if not one.error
    ]
    if rows:
        columns = ("run_id", "kind", "env_id", "model", "rollouts", "what")
        print_table(columns, ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "VARCHAR"), rows)
    for one in imported:
        if one.error:
            typer.echo(f"Not imported: {one.path}: {one.error}", err=True)
    typer.echo(f"{number(len(rows), 'run')} in {location}. Next: nightjar sql 'FROM leaderboard'", err=True)
