"""``nightjar eval repair``: sets what is damaged in a run directory aside."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.runs import RunDirectory
from nightjar.runs.repair import repair


def eval_repair(run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)]) -> None:
    """Set what is damaged in a run aside, so that a resume does again what it held.

    It is kept beside, in files that end with .damaged. A run of which nothing is damaged stays as it is.
    """
    faults = repair(RunDirectory(run_dir))
    for fault in faults:
        echo(f"Set aside: {fault}")
    if faults:
        echo(f"Next: the command of the run with --resume {shlex.quote(str(run_dir))}")
    else:
        echo("Nothing is damaged.")
