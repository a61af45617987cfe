"""``nightjar warehouse rebuild``: the warehouse anew from run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.location import open_folder
from nightjar.cli.warehouse.output import number, print_json, print_some, progress_of
from nightjar.foreign import default_paths, find_run_directories
from nightjar.warehouse import rebuilding
from nightjar.warehouse.rebuilding import RebuildReport


def rebuild(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders with run directories, at any depth (default: outputs and environments/*/outputs)."
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
    run_dirs = find_run_directories(paths or default_paths())
    folder = open_folder(warehouse, must_exist=False)
    folder.try_to_write()
    with progress_of("Reading run directories") as progress:
        report = rebuilding.rebuild(folder, run_dirs, progress)
    if as_json:
        print_json(report)
    else:
        _print_report(str(folder), report)
    if not report.is_whole:
        raise typer.Exit(1)


def _print_report(location: str, report: RebuildReport) -> None:
    echo(
        f"Rebuilt {location} from run directories: {number(report.published, 'run')}, "
        f"{number(report.rollouts, 'rollout')}, {report.seconds:.1f} s"
    )
    if report.kept:
        echo(f"Kept {number(len(report.kept), 'run')} as before:")
        print_some([f"{run_id}: {why}" for run_id, why in report.kept.items()])
    for run_dir, why in report.failures.items():
        echo(f"Not read: {run_dir}: {why}", err=True)
    for segment in report.set_aside:
        echo(f"Set aside: segment {segment!r} is damaged; it is in {location}/damaged now", err=True)
    if report.lost:
        echo(f"Lost: {number(len(report.lost), 'run')} of damaged segments: {', '.join(report.lost)}", err=True)
