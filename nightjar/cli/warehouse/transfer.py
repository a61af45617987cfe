"""Moves runs into and out of the warehouse: ``nightjar publish``, ``warehouse import`` and ``warehouse export``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as size

from nightjar.cli.options import JsonOption, WarehouseOption, argument, option
from nightjar.cli.output import print_json, progress_of
from nightjar.cli.sql.output import print_records
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import open_store
from nightjar.core.text import counted
from nightjar.evaluation.publishing import publish_directory
from nightjar.importers import Imported, import_all
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.exported_runs import Selection
from nightjar.warehouse.exporting import ExportFormat, ExportReport
from nightjar.warehouse.exporting import export as write_export


def publish(
    run_dir: Annotated[Path, argument("A run directory.")],
    new_id: Annotated[bool, option("Give the run a new ID if another run has its ID.", "--new-id")] = False,
    warehouse: WarehouseOption = None,
) -> None:
    """Publish a run directory into the warehouse; publishing twice changes nothing.

    Runs are published when they end. Use this command for a run from another machine, or for another warehouse. A run
    whose process was killed is published with the status crashed. To complete it: nightjar eval run --resume DIRECTORY.

    A run is refused if a run in the warehouse has the same ID and another model, configuration or dataset. With
    --new-id, it is published under a new ID.
    """
    chosen = Warehouse(resolve_warehouse(warehouse))
    echo(publish_directory(run_dir, chosen, has_new_id=new_id).line(chosen.location))


def import_results(
    paths: Annotated[list[Path], argument("Folders or files with results, at any depth.")],
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish runs of Nightjar, and results of verifiers, NeMo Evaluator, Inspect and lm-eval.

    The files stay unchanged. Importing again changes nothing; after an interruption, run the command again. Unreadable
    results and samples are reported, and all others are imported; then the exit code is 1.

    Example: nightjar warehouse import ../old-project/outputs results/eval-20260101.json logs
    """
    store = open_store(warehouse, must_exist=False)
    store.check_writable()
    with progress_of("Importing") as progress:
        imported = list(import_all(Warehouse(resolve_warehouse(warehouse)), paths, progress))
    if as_json:
        print_json(imported)
    else:
        _print_imported(str(store), imported)
    if any(one.error or one.unreadable for one in imported):
        raise typer.Exit(1)


def _print_imported(location: str, imported: list[Imported]) -> None:
    done = [one for one in imported if not one.error]
    names = ("run_id", "kind", "env_id", "model", "rollouts")
    if done:
        print_records([{**{name: getattr(one, name) for name in names}, "what": one.novelty} for one in done])
    for one in imported:
        if one.error:
            echo(f"Not imported: {one.path}: {one.error}", err=True)
        for row in one.unreadable:
            echo(f"Left out: {row}", err=True)
    changed = {one.run_id for one in done if one.novelty in {"new", "updated"}}
    unchanged = {one.run_id for one in done} - changed
    there = f" ({len(unchanged):,} already there)" if unchanged else ""
    echo(
        f"Imported {counted(len(changed), 'run')} into {location}{there}. Next: nightjar sql 'FROM leaderboard'",
        err=True,
    )


def export_runs(
    target: Annotated[Path, argument("The folder or DuckDB file to create.")],
    output_format: Annotated[
        ExportFormat | None,
        option("Output format (default: duckdb for a .duckdb file, else parquet).", "--format", case_sensitive=False),
    ] = None,
    where: Annotated[str | None, option("Only runs that meet this SQL condition on the table runs.")] = None,
    suite: Annotated[str | None, option("Only the runs of this suite.")] = None,
    run: Annotated[list[str] | None, option("Only this run; may be given several times.")] = None,
    tables: Annotated[
        str | None, option("Any of runs, rollouts, attempts, examples, metrics, errors (default: the first four).")
    ] = None,
    force: Annotated[bool, option("Replace an earlier export.", "--force")] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write runs into files to share: Parquet, CSV, JSON lines, or one DuckDB file with the views.

    Parquet files are sorted into one folder per environment and model. In JSON lines, rollouts have the format of
    results.jsonl. The file or folder is created only when the export is complete.

    Example: nightjar warehouse export for-ann.duckdb --where "env_id = 'gsm8k' AND started_at >= '2026-01-01'"

    Example: nightjar warehouse export nightly --suite nightly --tables runs,rollouts --format csv
    """
    store = open_store(warehouse)
    with progress_of("Writing") as progress:
        report = write_export(
            store,
            target,
            chosen=Selection(where, suite, tuple(run or ())),
            output_format=output_format,
            tables=[name.strip() for name in tables.split(",")] if tables is not None else None,
            force=force,
            progress=progress,
        )
    if as_json:
        print_json(report)
        return
    rows = ", ".join(f"{count:,} {table}" for table, count in report.rows.items() if table != "runs")
    echo(f"Exported {counted(report.runs, 'run')} ({rows}) to {report.target}: {size(report.bytes)}")
    echo(f"Next: {_next_command(report)}", err=True)


def _next_command(report: ExportReport) -> str:
    if report.target.is_file():
        return shlex.join(["duckdb", "-readonly", str(report.target), "-c", "FROM leaderboard"])
    table = next(iter(report.rows))
    lines = [path for path in report.target.iterdir() if path.stem == table and path.is_file()]
    if lines:
        return shlex.join(["head", "-n", "3", str(lines[0])])
    files = f"{report.target / table}/**/*.parquet".replace("'", "''")
    return shlex.join(["duckdb", "-c", f"FROM read_parquet('{files}', hive_partitioning = true)"])
