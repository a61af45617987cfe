"""What commands that look at runs have in common: which run is meant, and where runs are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of a run, how one begins, or a run directory.", show_default=False)
]
OutputDirOption = Annotated[
    Path | None, typer.Option("--output-dir", "-o", help="Folder of run directories (default: ./outputs).")
]
