"""``nightjar view`` and ``nightjar export``: runs in a browser, and in files that open without Nightjar."""

from __future__ import annotations

import shlex
import webbrowser
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from nightjar.analysis.selecting import selected
from nightjar.cli.eval.flags import command_of
from nightjar.cli.options import RunArgument, WarehouseOption, argument, option
from nightjar.cli.terminal import echo
from nightjar.core.text import counted, harmless
from nightjar.errors import ConfigError
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run
from nightjar.exporters import export_to_mlflow, export_to_wandb
from nightjar.exporters.inspect_log import is_log_of
from nightjar.reports.html import write_page
from nightjar.view.exporting import Export, is_page_of, run_log, run_page
from nightjar.view.server import serve
from nightjar.warehouse import Warehouse, resolve_warehouse


def view(
    paths: Annotated[
        list[str] | None,
        argument("Files or folders of results to show without importing them, or runs of the warehouse."),
    ] = None,
    host: Annotated[
        str, option("Address to listen on; a non-local address needs a token.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int | None, option("Port (default: 4280, or the next free port).", min=0, max=65535)] = None,
    no_browser: Annotated[bool, option("Do not open a browser.", "--no-browser")] = False,
    warehouse: WarehouseOption = None,
) -> None:
    """Browse runs, examples and conversations in a web browser, until Ctrl-C. Read-only.

    Shows the warehouse, or the results in files: of Nightjar, Inspect, lm-eval, verifiers or NeMo Evaluator. Files
    are not imported, and notes on their rollouts are not kept.

    Example: nightjar view --port 4300 --no-browser

    Example: nightjar view logs/2026-01-31T10-00-00+00-00_gsm8k_2Xb4.eval
    """
    where = Warehouse(resolve_warehouse(warehouse))
    if paths:
        with selected(paths, where, each=True) as (shown, found):
            run_ids = list(dict.fromkeys(run_id for run_ids in found for run_id in run_ids))
            what = f"Warehouse {where.location}" if shown is where else f"{counted(len(run_ids), 'run')}, not imported,"
            page = f"runs/{quote(run_ids[0], '')}" if len(run_ids) == 1 else ""
            serve(shown, host, port, partial(_announce, what, page, opens=not no_browser), command_of)
        return
    exists = where.folder is None or (where.folder / "segments").is_dir()
    if where.folder is not None and where.folder.is_file():
        raise ConfigError(f"The warehouse {where.location} is a file; expected a folder.")
    missing = "" if exists else ", which does not exist yet and is created when the first run is published,"
    what = f"Warehouse {where.location}{missing}"
    serve(where, host, port, partial(_announce, what, "", opens=not no_browser), command_of)


def _announce(what: str, page: str, address: str, *, opens: bool) -> None:
    """Prints and opens the address of a page. ``address`` is that of the first page, and may end with a token."""
    base, mark, token = address.partition("?")
    echo(f"{what} at {base}{page}{mark}{token}  (Ctrl-C ends it)")
    if opens:
        webbrowser.open(f"{base}{page}{mark}{token}")


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
