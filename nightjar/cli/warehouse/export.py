"""``nightjar warehouse export``: some runs, as files for somebody else."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as size

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.location import open_store
from nightjar.cli.warehouse.output import number, print_json, progress_of
from nightjar.warehouse.export import ExportFormat, ExportReport, Selection
from nightjar.warehouse.export import export as write_export


def export(
    target: Annotated[Path, typer.Argument(help="A folder, or a file of DuckDB, to be made.")],
    output_format: Annotated[
        ExportFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            case_sensitive=False,
            help="parquet, csv, jsonl or duckdb (default: duckdb for a name that ends in .duckdb, else parquet).",
        ),
    ] = None,
    where: Annotated[str | None, typer.Option(help="A condition in SQL on the table runs.")] = None,
    suite: Annotated[str | None, typer.Option(help="Only the runs of this suite.")] = None,
    run: Annotated[list[str] | None, typer.Option(help="Only this run; may be given several times.")] = None,
    tables: Annotated[
        str | None,
        typer.Option(help="Which of runs, rollouts, attempts, examples, metrics, errors (default: the first four)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write runs into files to hand on: Parquet, CSV, JSON lines, or one DuckDB file with the views.

    Parquet is in folders of environment and model; the rollouts in JSON lines are as in results.jsonl. The target
    appears when it is complete.

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
    show = print_json if as_json else _print_report
    show(report)


def _print_report(report: ExportReport) -> None:
    rows = ", ".join(f"{count:,} {table}" for table, count in report.rows.items() if table != "runs")
    echo(f"Exported {number(report.runs, 'run')} ({rows}) to {report.target}: {size(report.bytes)}")
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
