"""``nightjar deploy``: deployments and schedules, shown before they are made.

nightjar deploy configs/eval/nightly.toml --cron "0 2 * * *" --time-zone Europe/Berlin --notify slack-webhook/team
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.services.up import NamePrefixOption, TakeOverOption
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption
from nightjar.cli.warehouse.output import print_json
from nightjar.config.gate_policy import GatePolicy
from nightjar.config.suite import load_suite
from nightjar.errors import ConfigError, MissingEnvironmentsError, ServiceError
from nightjar.evaluation import check_environments
from nightjar.hosting.server import SETTINGS, find_prefect_api
from nightjar.terminal import harmless

if TYPE_CHECKING:
    from nightjar.hosting.changes import Change

_SIGNS = {"create": "+", "change": "~", "keep": "="}


def deploy(
    suite: Annotated[
        Path | None, typer.Argument(metavar="[SUITE]", help="File of a suite that is to run on a schedule.")
    ] = None,
    cron: Annotated[str | None, typer.Option(metavar="CRON", help="When it runs, such as '0 2 * * *'.")] = None,
    gate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Policy that each night is held against: nightjar gate.")
    ] = None,
    retry_cron: Annotated[
        str | None, typer.Option(metavar="CRON", help="When runs that failed in the last 24 hours are retried.")
    ] = None,
    upkeep_cron: Annotated[
        str | None, typer.Option(metavar="CRON", help="When the warehouse is examined and packed.")
    ] = None,
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Whose time these are, such as Europe/Berlin.")
    ] = "UTC",
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE/NAME",
            help="Block of Prefect's notifications that is told what nights come to, and of failed and missing ones; "
            "such as slack-webhook/team.",
        ),
    ] = None,
    name_prefix: NamePrefixOption = "",
    take_over: TakeOverOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Register the deployments of this folder, and the schedule of a suite; shows what changes first.

    What is there already stays as somebody has set it, but for what belongs to the code, and for the schedule of this
    suite. Workers run the suite's file as it is then, in the folder of the deployment.

    Example: nightjar deploy configs/eval/nightly.toml --cron '0 2 * * *' --time-zone Europe/Berlin
    """
    if (suite is None) != (cron is None):
        raise typer.BadParameter("a suite goes with --cron, and --cron with a suite")
    if notify and suite is None:
        raise typer.BadParameter("--notify goes with a suite and --cron")
    if gate and suite is None:
        raise typer.BadParameter("--gate goes with a suite and --cron")
    if suite is not None:
        _check_suite(suite)
    if gate is not None:
        GatePolicy.read(gate)
        _check_relative(gate)
    api_url = find_prefect_api()
    if api_url is None:
        raise ServiceError("There is no Prefect server to deploy to. Start one here: nightjar up --detach")
    os.environ.update({**SETTINGS, "PREFECT_API_URL": api_url})
    from nightjar.hosting.deploying import Wanted
    from nightjar.hosting.deploying import deploy as deploy_to

    wanted = Wanted(Path.cwd(), name_prefix, take_over, suite, cron, gate, retry_cron, upkeep_cron, time_zone, notify)
    is_done = asyncio.run(deploy_to(wanted, partial(_confirm, dry_run=dry_run, yes=yes, as_json=as_json)))
    if is_done and not as_json:
        echo(f"Deployed to {api_url.removesuffix('/api')}. Next: nightjar status")


def _check_suite(suite: Path) -> None:
    evaluations = load_suite(suite, {})
    try:
        check_environments([each.config for each in evaluations])
    except MissingEnvironmentsError as error:
        echo(f"Warning: the worker needs what is not here. {error}", err=True)
    _check_relative(suite)


def _check_relative(path: Path) -> None:
    if path.is_absolute():
        raise ConfigError(f"Name {str(path)!r} as a path from this folder: other machines have it elsewhere")


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
        raise ConfigError("Nothing was changed: without a terminal to ask, say --yes")
    return typer.confirm("Change the server so?", err=True)
