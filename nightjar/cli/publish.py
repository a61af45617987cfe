"""``nightjar publish``: a run directory into the warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def publish(
    run_dir: Annotated[Path, typer.Argument(help="A run directory.", show_default=False)],
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            help="Folder of the warehouse (default: NIGHTJAR_WAREHOUSE, else ./outputs/warehouse).",
        ),
    ] = None,
) -> None:
    """Publish a run directory into the warehouse; publishing twice changes nothing.

    Runs are published when they end, so this is for a run that was killed, or that comes from another machine.
    """
    from nightjar.warehouse import Warehouse, resolve_warehouse

    chosen = Warehouse(resolve_warehouse(warehouse))
    report = chosen.publish(run_dir)
    typer.echo(f"Published {report.rollouts} rollouts of run {report.run_id} into {chosen.folder}")
