"""``nightjar export``: a run in files that open without Nightjar, or in another program."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.options import RunArgument, WarehouseOption, option
from nightjar.cli.terminal import echo
from nightjar.core.text import counted, harmless
from nightjar.errors import ConfigError
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run
from nightjar.exporters import export_to_mlflow, export_to_wandb
from nightjar.exporters.inspect_log import is_log_of
from nightjar.reports.html import write_page
from nightjar.view.exporting import Export, is_page_of, run_log, run_page


class Program(StrEnum):
    MLFLOW = "mlflow"
    WANDB = "wandb"
    INSPECT = "inspect"


def export(
    run: RunArgument,
    to: Annotated[
        Program | None, option("Export to MLflow, Weights & Biases or Inspect; see --into.", metavar="PROGRAM")
    ] = None,
    into: Annotated[
        str | None,
        option(
            "Place of --to. MLflow: a tracking URI or a folder (default: MLFLOW_TRACKING_URI, or MLflow's default). "
            "W&B: the folder that contains wandb/ (default: the current folder). Inspect: a folder (default: logs).",
            metavar="PLACE",
        ),
    ] = None,
    html: Annotated[Path | None, option("Write a page with statistics and conversations.", metavar="FILE")] = None,
    log: Annotated[
        Path | None,
        option("Write a log for 'inspect view' into this folder or .json file.", "--inspect-log", metavar="FOLDER"),
    ] = None,
    limit: Annotated[
        int, option("Maximum number of rollouts on the page; examples are kept whole.", min=1, metavar="N")
    ] = 200,
    warehouse: WarehouseOption = None,
) -> None:
    r"""Write a run for other programs: a page for a browser, an Inspect log, an MLflow run or a W&B offline run.

    A second export to the same place replaces the first. MLflow and W&B need the extras nightjar-evals\[mlflow] and
    nightjar-evals\[wandb]. To export several runs for DuckDB and other programs, use 'nightjar warehouse export'.

    Example: nightjar export 0a1b2c --to mlflow --into http://127.0.0.1:5000
    """
    if not html and not log and not to:
        raise typer.BadParameter("give --to PROGRAM, --html FILE or --inspect-log FOLDER")
    if into is not None and not to:
        raise typer.BadParameter("--into PLACE needs --to PROGRAM")
    found = find_stored_run(run, warehouse=warehouse)
    if html:
        _write_page(html, found, limit)
    if log:
        _write_log(log, found)
    match to:
        case Program.INSPECT:
            _write_log_into(Path(into or "logs"), found)
        case Program.MLFLOW:
            _write_mlflow(found, into)
        case Program.WANDB:
            _write_wandb(found, Path(into or "."))


def _write_page(path: Path, found: StoredRun, limit: int) -> None:
    """Writes a page into a folder, or to a file. Replaces only a page of the same run."""
    if path.is_file() and not is_page_of(path, found.run_id):
        raise ConfigError(f"{str(path)!r} is not a page of run {found.run_id!r} by Nightjar, so it is kept.")
    _write(path, run_page(found, limit))


def _write_log(path: Path, found: StoredRun) -> None:
    """Writes a log into a folder, or to a ``.json`` file. Replaces only a log of the same run."""
    if path.suffix != ".json" or path.is_dir():
        _write_log_into(path, found)
        return
    if path.exists() and not is_log_of(path, found.run_id):
        raise ConfigError(f"{str(path)!r} is not an Inspect log of run {found.run_id!r} by Nightjar, so it is kept.")
    _write(path, run_log(found))
    _show_next("inspect", "view", "start", "--log-dir", str(path.parent))


def _write_log_into(folder: Path, found: StoredRun) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{str(folder)!r} is a file; expected a folder for the Inspect log.")
    exported = run_log(found)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, exported)
    _show_next("inspect", "view", "start", "--log-dir", str(folder))


def _write_mlflow(found: StoredRun, destination: str | None) -> None:
    written = export_to_mlflow(found, destination)
    done = "Wrote" if written.is_new else "Updated"
    echo(f"{done} run {written.run_id} of experiment {written.experiment!r}: {counted(written.rollouts, 'rollout')}")
    if written.kept:
        names = ", ".join(written.kept)
        echo(f"MLflow keeps the first value of a parameter; config.json has the new values of {names}", err=True)
    if not written.tracking_uri.startswith("http"):
        allowed = "MLFLOW_ALLOW_FILE_STORE=true " if written.tracking_uri.startswith("file:") else ""
        _show_next("mlflow", "ui", "--backend-store-uri", written.tracking_uri, before=allowed)


def _write_wandb(found: StoredRun, destination: Path) -> None:
    written = export_to_wandb(found, destination)
    echo(f"Wrote {harmless(str(written.folder))}: {written.shown:,} of {counted(written.rollouts, 'rollout')}")
    command = shlex.join(["wandb", "sync", str(written.folder)])
    echo(f"Nothing was sent. To upload the run: {harmless(command)}", err=True)


def _show_next(*command: str, before: str = "") -> None:
    echo(f"Next: {before}{harmless(shlex.join(command))}", err=True)


def _write(path: Path, exported: Export) -> None:
    if not path.suffix or path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        path /= exported.name
    write_page(path, exported.text)
    echo(f"Wrote {harmless(str(path))}: {exported.shown:,} of {counted(exported.rollouts, 'rollout')}")
    if exported.missing:
        planned = exported.rollouts + exported.missing
        echo(f"The run is not complete: {exported.missing:,} of {planned:,} planned rollouts are missing", err=True)
