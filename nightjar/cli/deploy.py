"""``nightjar deploy``: deployments and schedules on a Prefect server, shown before they are changed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nightjar.analysis.gates.policy import GatePolicy
from nightjar.cli.options import JsonOption, NamePrefixOption, TakeOverOption, YesOption, argument, option
from nightjar.cli.output import print_json
from nightjar.cli.terminal import echo
from nightjar.core.text import harmless
from nightjar.errors import ConfigError, EnvironmentNotFoundError, ServiceError
from nightjar.evaluation import check_environments
from nightjar.evaluation.config.suite import load_suite
from nightjar.hosting.server import POOL, SETTINGS, find_prefect_api, prefixed

if TYPE_CHECKING:
    from nightjar.hosting.automations import Change

_SIGNS = {"create": "+", "change": "~", "keep": "="}


def deploy(
    suite: Annotated[Path | None, argument("File of the suite to run on a schedule.", metavar="[SUITE]")] = None,
    cron: Annotated[str | None, option("When the suite runs, such as '0 2 * * *'.", metavar="CRON")] = None,
    gate: Annotated[
        Path | None, option("Policy that judges each night, as for 'nightjar gate'.", metavar="FILE")
    ] = None,
    retry_cron: Annotated[str | None, option("When to retry runs that failed in the last day.", metavar="CRON")] = None,
    upkeep_cron: Annotated[str | None, option("When to examine and compact the warehouse.", metavar="CRON")] = None,
    time_zone: Annotated[str, option("Time zone of these times, such as Europe/Berlin.", metavar="ZONE")] = "UTC",
    notify: Annotated[
        str | None, option("Prefect block that is notified of nights, such as slack-webhook/team.", metavar="TYPE/NAME")
    ] = None,
    pool: Annotated[
        Literal["process", "docker"] | None,
        option("Type of the work pool: runs are processes of a worker, or containers (default: process)."),
    ] = None,
    image: Annotated[
        str | None,
        option("Image of the containers of a Docker pool (default: nightjar, of 'make image').", metavar="NAME"),
    ] = None,
    name_prefix: NamePrefixOption = "",
    take_over: TakeOverOption = False,
    dry_run: Annotated[bool, option("Show the changes without making them.", "--dry-run")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the changes, then register the deployments of this folder and the schedule of a suite.

    With --pool docker, runs are containers. The deployments and the work pool are separate from those of 'nightjar up':
    unless --name-prefix names another prefix, they are called evaluate/docker-evaluate and docker-nightjar.

    Existing deployments keep their settings, except the code and the schedule of this suite.
    Each time the suite runs, the worker reads the suite's file in the folder of the deployment.

    Example: nightjar deploy configs/eval/nightly.toml --cron '0 2 * * *' --time-zone Europe/Berlin
    """
    if (suite is None) != (cron is None):
        raise typer.BadParameter("a suite requires --cron, and --cron requires a suite")
    for flag, value in {"--notify": notify, "--gate": gate}.items():
        if value and suite is None:
            raise typer.BadParameter(f"{flag} requires a suite and --cron")
    if image is not None and pool != "docker":
        raise typer.BadParameter("--image requires --pool docker")
    _check_files(suite, gate)
    api_url = find_prefect_api()
    if api_url is None:
        raise ServiceError("There is no Prefect server to deploy to. Start one here: nightjar up --detach")
    os.environ.update({**SETTINGS, "PREFECT_API_URL": api_url})
    from nightjar.hosting.deployments import Wanted
    from nightjar.hosting.deployments import deploy as deploy_to

    prefix = name_prefix or ("docker" if pool == "docker" else "")
    wanted = Wanted(
        Path.cwd(), prefix, take_over, suite, cron, gate, retry_cron, upkeep_cron, time_zone, notify, pool, image
    )
    made = asyncio.run(deploy_to(wanted, partial(_confirm, dry_run=dry_run, yes=yes, as_json=as_json)))
    if made and not as_json:
        echo(f"Deployed to {api_url.removesuffix('/api')}. Next: nightjar status")
        if pool == "docker":
            worker = f"prefect worker start --pool {prefixed(POOL, prefix)} --type docker"
            echo(f"A worker for these runs, beside docker or podman: PREFECT_API_URL={api_url} {worker}")


def _check_files(suite: Path | None, gate: Path | None) -> None:
    if suite is not None:
        _check_suite(suite)
    if gate is not None:
        GatePolicy.read(gate)
    for path in filter(None, (suite, gate)):
        if path.is_absolute():
            raise ConfigError(
                f"Give {str(path)!r} relative to this folder: an absolute path may differ on other machines"
            )


def _check_suite(suite: Path) -> None:
    evaluations = load_suite(suite, {})
    try:
        check_environments([each.config for each in evaluations])
    except EnvironmentNotFoundError as error:
        echo(f"Warning: the worker needs environments that are missing here. {error}", err=True)


def _confirm(changes: Sequence[Change], *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    if as_json:
        print_json([{"what": each.what, "becomes": each.kind, "details": each.details} for each in changes])
    else:
        for each in changes:
            echo(harmless(f"{_SIGNS[each.kind]} {each.what}" + "".join(f"\n    {line}" for line in each.details)))
    if dry_run:
        return False
    if all(each.kind == "keep" for each in changes):
        echo("Nothing changes.", err=True)
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("Nothing was changed, because stdin is not a terminal. Confirm with --yes")
    return typer.confirm("Apply these changes to the server?", err=True)
