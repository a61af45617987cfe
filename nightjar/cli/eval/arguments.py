"""What commands that look at runs have in common: which run is meant, and where runs are."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from nightjar.errors import ConfigError, ServiceError
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.hosted_runs import HostedRun, find_hosted_run
from nightjar.hosting.server import find_prefect_api

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of a run, how one begins, or a run directory.", show_default=False)
]
HostedRunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Id of a run or flow run, how one begins, or its name.", show_default=False),
]
OutputDirOption = Annotated[
    Path | None, typer.Option("--output-dir", "-o", help="Folder of run directories (default: ./outputs).")
]
PrefectUrlOption = Annotated[
    str | None,
    typer.Option(
        "--prefect-url",
        metavar="URL",
        help="Prefect's server (default: PREFECT_API_URL, Prefect's active profile, or that of 'nightjar up').",
    ),
]
_FLAGS = {"logs": " -f"}


def server_if_any(prefect_url: str | None) -> PrefectApi | None:
    """Returns the server that is named or configured, or that of 'nightjar up'; None where there is none.

    Raises:
        ServiceError: it does not answer.
    """
    api_url = find_prefect_api(prefect_url)
    return PrefectApi(api_url) if api_url else None


def hosted_run(asked: str, prefect_url: str | None) -> tuple[PrefectApi, HostedRun]:
    """Returns the flow run that somebody means, with its server.

    Raises:
        ConfigError: there is none, or there are several.
        ServiceError: there is no server, or it does not answer.
    """
    api = server_if_any(prefect_url)
    if api is None:
        raise ServiceError("There is no Prefect server that knows of runs. Name one: --prefect-url URL")
    run = find_hosted_run(api, asked)
    if run is None:
        raise ConfigError(
            f"Prefect's server at {api.url} knows no run {asked!r}. Those that there are: nightjar eval list"
        )
    return api, run


def next_commands(run_id: str, commands: Iterable[str], prefect_url: str | None = None) -> str:
    """Returns commands to type about a run, such as ``logs`` and ``stop``."""
    where = f" --prefect-url {shlex.quote(prefect_url)}" if prefect_url else ""
    return " | ".join(f"nightjar eval {command} {run_id}{_FLAGS.get(command, '')}{where}" for command in commands)
