"""``nightjar publish``: a run directory into the warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import WarehouseOption
from nightjar.evaluation.publishing import publish_directory
from nightjar.warehouse import Warehouse, resolve_warehouse


def publish(
    run_dir: Annotated[Path, typer.Argument(help="A run directory.")],
    warehouse: WarehouseOption = None,
) -> None:
    """Publish a run directory into the warehouse; publishing twice changes nothing.

    Runs are published when they end, so this is for a run that comes from another machine, or is to be in another
    warehouse. One whose process was killed is added up, and published with status crashed; --resume does the rest.
    """
    chosen = Warehouse(resolve_warehouse(warehouse))
    echo(publish_directory(run_dir, chosen).line(chosen.location))
