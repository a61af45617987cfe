"""``nightjar up``: the local Prefect server, a worker, and the deployments."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from nightjar.hosting.supervisor import supervise, supervise_in_background


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background.")] = False,
    port: Annotated[int, typer.Option("--port", help="Port of the Prefect server.")] = 4200,
) -> None:
    """Start the local Prefect server, a worker and the deployments.

    Flow runs write to ./outputs of the folder where this command was typed, and see its environment variables:
    export the API keys first.
    """
    if detach:
        typer.echo(supervise_in_background(port))
    else:
        supervise(port, announce=typer.echo, notify=partial(typer.echo, err=True))
