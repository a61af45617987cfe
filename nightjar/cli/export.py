"""``nightjar export``: a run in a file that opens without Nightjar.

nightjar export 0a1b2c3d4e5f --html run.html
nightjar export 0a1b2c3d4e5f --inspect-log logs
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.eval.arguments import RunArgument
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import WarehouseOption
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.reports.html import write_page
from nightjar.serving.exporting import HandedOn, run_log, run_page
from nightjar.terminal import harmless


def export(
    run: RunArgument,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page: the figures, and samples with conversations.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--inspect-log", metavar="FOLDER", help="Write a log that 'inspect view' lists, or to a name with .json."
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="So many rollouts at most are in the page, in whole examples; the first one in any case.",
        ),
    ] = 200,
    warehouse: WarehouseOption = None,
) -> None:
    """Write a run into a file that opens without Nightjar: a page for a browser, or a log for Inspect.

    Several runs, for DuckDB and other programs: nightjar warehouse export.

    Example: nightjar export 0a1b2c --html run.html
    """
    if not html and not log:
        raise typer.BadParameter("give --html FILE, --inspect-log FILE, or both")
    found = find_stored_run(run, warehouse=warehouse)
    if html:
        _write(html, run_page(found, limit))
    if log:
        _write(log, run_log(found))
        echo(f"Next: inspect view start --log-dir {log.parent if log.suffix == '.json' else log}", err=True)


def _write(path: Path, made: HandedOn) -> None:
    """Writes a file; with its own name into what is no name of a file."""
    if not path.suffix or path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        path /= made.name
    write_page(path, made.text)
    echo(f"Wrote {harmless(str(path))}: {made.shown:,} of {made.rollouts:,} rollouts")
