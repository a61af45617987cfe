"""``nightjar publish``: a run directory into the warehouse."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from nightjar import evaluation
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import WarehouseOption
from nightjar.runs import RunDirectory, end_crashed
from nightjar.warehouse import Warehouse, resolve_warehouse


def publish(
    run_dir: Annotated[Path, typer.Argument(help="A run directory.")],
    warehouse: WarehouseOption = None,
) -> None:
    """Publish a run directory into the warehouse; publishing twice changes nothing.

    Runs are published when they end, so this is for a run that comes from another machine, or is to be in another
    warehouse. One whose process was killed is added up, and published with status crashed; --resume does the rest.
    """
    chosen, directory = Warehouse(resolve_warehouse(warehouse)), RunDirectory(run_dir)
    directory.read_metadata()
    can_write = os.access(run_dir, os.W_OK)
    with directory if can_write else nullcontext():
        if can_write:
            end_crashed(directory)
        report = evaluation.publish(directory, chosen)
    if report.is_older:
        echo(f"Run {report.run_id} is in {chosen.location} with newer attempts: nothing was changed.")
        return
    done = "Published" if report.is_new else "Already there:"
    echo(f"{done} {report.rollouts} rollouts of run {report.run_id} in {chosen.location}")
