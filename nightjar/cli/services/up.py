"""``nightjar up``: the local Prefect server, a worker, and the deployments."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.hosting.supervisor import supervise, supervise_in_background


def _checked(prefix: str) -> str:
    if not re.fullmatch(r"[\w.-]*", prefix):
        raise typer.BadParameter("letters, digits, '-', '_' and '.' alone")
    return prefix


NamePrefixOption = Annotated[
    str,
    typer.Option(
        "--name-prefix",
        metavar="NAME",
        callback=_checked,
        help="Deployments and a work pool of one's own: NAME-evaluate, NAME-nightjar.",
    ),
]
TakeOverOption = Annotated[
    bool, typer.Option("--take-over", help="Make the deployments that another folder has registered this one's.")
]


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background.")] = False,
    port: Annotated[int, typer.Option("--port", help="Port of the Prefect server.")] = 4200,
    name_prefix: NamePrefixOption = "",
    take_over: TakeOverOption = False,
    no_view: Annotated[bool, typer.Option("--no-view", help="Do not serve the web view.")] = False,
) -> None:
    """Start the local Prefect server, a worker, the deployments and the web view, and keep them running.

    Flow runs write to ./outputs of the folder where this command was typed, and see its environment variables:
    export the API keys first. Of deployments that are there already only what belongs to the code is changed:
    schedules, limits, tags, default parameters and job variables stay. Runs whose process is gone become Crashed, so
    that the UI offers Retry.
    """
    if detach:
        echo(supervise_in_background(port, name_prefix, is_taken_over=take_over, is_viewed=not no_view))
    else:
        supervise(
            port,
            name_prefix,
            is_taken_over=take_over,
            is_viewed=not no_view,
            announce=echo,
            notify=partial(echo, err=True),
        )
