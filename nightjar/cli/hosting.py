"""``nightjar up``, ``down`` and ``status``: the local Prefect server with its worker and deployments."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Annotated

import typer

from nightjar.cli.options import JsonOption, NamePrefixOption, TakeOverOption, option
from nightjar.cli.output import print_json, print_labelled
from nightjar.cli.terminal import echo
from nightjar.core.text import counted
from nightjar.hosting.status import (
    DeploymentStatus,
    RunStatus,
    ScheduleStatus,
    ServiceStatus,
    Status,
    WorkPoolStatus,
    read_status,
)
from nightjar.hosting.supervisor import Choices, stop, supervise, supervise_in_background, worker_runs

_POLL_SECONDS = 1.0


def up(
    detach: Annotated[bool, option("Run in the background.", "--detach", "-d")] = False,
    port: Annotated[int, option("Port of the Prefect server.", min=1, max=65_535)] = 4200,
    name_prefix: NamePrefixOption = "",
    take_over: TakeOverOption = False,
    no_view: Annotated[bool, option("Do not serve the web view.", "--no-view")] = False,
    view_port: Annotated[
        int | None, option("Port of the web view (default: 4280, or the next free port).", min=1, max=65535)
    ] = None,
    database_url: Annotated[
        str,
        option(
            "URL of a PostgreSQL database for the server (default: an SQLite file). $NAME in the URL stands for the "
            "value of the environment variable NAME."
        ),
    ] = "",
) -> None:
    """Start the local Prefect server, a worker and the web view, and register the deployments.

    Processes that crash are restarted. Flow runs write to ./outputs in the current folder and inherit the current
    environment variables, so export the API keys first. Existing deployments are updated to the current code. They keep
    their schedules, limits, tags, default parameters and job variables. A run whose process has died becomes Crashed,
    so that the UI offers Retry.
    """
    if no_view and view_port is not None:
        raise typer.BadParameter("--no-view and --view-port contradict each other")
    chosen = Choices(
        port,
        name_prefix,
        is_taken_over=take_over,
        is_viewed=not no_view,
        view_port=view_port,
        database_url=database_url,
    )
    if detach:
        echo(supervise_in_background(chosen))
    else:
        supervise(chosen, announce=echo, notify=partial(echo, err=True))


def down(
    yes: Annotated[bool, option("Cancel runs in progress without asking.", "--yes", "-y")] = False,
    wait: Annotated[bool, option("Let the runs in progress finish first.", "--wait")] = False,
) -> None:
    """Stop what 'nightjar up' started.

    The worker's runs in progress are cancelled. Their finished rollouts are published, and Retry completes the runs.
    """
    if runs := worker_runs():
        echo("In progress:\n" + "\n".join(f"  {run.name} ({run.state.lower()}, {run.id})" for run in runs), err=True)
    if runs and not wait and not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("stdin is not a terminal: --yes cancels the runs, --wait lets them finish")
        which = "this run" if len(runs) == 1 else f"these {len(runs)} runs"
        typer.confirm(f"Cancel {which}? Finished rollouts are kept and published", abort=True, err=True)
    while wait and runs:
        time.sleep(_POLL_SECONDS)
        runs = worker_runs()
    echo("Stopped." if stop() else "Nothing is running.")


def status(as_json: JsonOption = False) -> None:
    """Show the server, worker, deployments and schedules of 'nightjar up', and the runs in progress.

    The exit code is 1 if no server responds, or if a process of 'nightjar up' is not running or was left behind by an
    earlier 'nightjar up'.
    """
    found = read_status()
    (print_json if as_json else _print_status)(found)
    is_left_over = bool(found.services) and found.supervisor_pid is None
    raise typer.Exit(int(is_left_over or not (found.is_answering and found.are_running)))


def _print_status(found: Status) -> None:
    if found.is_starting:
        echo(f"'nightjar up' is starting, as process {found.supervisor_pid}.")
    elif found.api_url is None:
        echo("Nothing is running. Start it with: nightjar up --detach")
    if found.api_url is None:
        return
    url, answer = found.api_url.removesuffix("/api"), "answers" if found.is_answering else "does not answer"
    print_labelled(
        {
            "Server": f"{url} {answer}",
            "Web view": found.view_url,
            "Services": "\n".join(_services(found)),
            "Work pools": "\n".join(_work_pools(found)),
            "Deployments": "\n".join(map(_deployment, found.deployments)),
            "Schedules": "\n".join(map(_schedule, found.schedules)) or "none",
            "In progress": "\n".join(map(_run, found.runs)) or "no run",
            "Log": found.log,
        }
    )


def _work_pools(found: Status) -> list[str]:
    starting = found.work_pools[:1] if found.services and found.are_running else []
    return [_work_pool(each, is_starting=each in starting) for each in found.work_pools]


def _work_pool(pool: WorkPoolStatus, *, is_starting: bool) -> str:
    kind = f" ({pool.type})" if pool.type not in {None, "process"} else ""
    status = (pool.status or "not found").lower().replace("_", " ")
    if status == "not ready":
        missing = f"has no worker: prefect worker start --pool {pool.name} --type {pool.type}"
        status = "its worker is starting" if is_starting else missing
    return f"{pool.name}{kind}, {status}"


def _services(found: Status) -> list[str]:
    if found.supervisor_pid is not None:
        return [_service(each, "is not running, and is being restarted") for each in found.services]
    left = [_service(each, "is not running") for each in found.services]
    return ["'nightjar up' is not running" + (": its next start replaces these" if left else ""), *left]


def _service(service: ServiceStatus, otherwise: str) -> str:
    restarts = f", restarted {counted(service.restarts, 'time')}" if service.restarts else ""
    running = f"process {service.pid}" if service.is_running else otherwise
    return f"{service.name}: {running}{restarts}"


def _deployment(deployment: DeploymentStatus) -> str:
    folder = f"in {deployment.folder}" if deployment.folder else ""
    limit = f"{deployment.concurrency_limit} at once" if deployment.concurrency_limit else ""
    paused = "paused" if deployment.is_paused else ""
    return ", ".join(filter(None, [deployment.name, folder, limit, paused]))


def _schedule(schedule: ScheduleStatus) -> str:
    due = f"next {schedule.next_at.astimezone():%Y-%m-%d %H:%M:%S}" if schedule.next_at else "no run is due"
    return f"{schedule.deployment}: {schedule.when}, {due if schedule.is_active else 'paused'}"


def _run(run: RunStatus) -> str:
    return f"{run.state.lower()} since {run.since.astimezone():%H:%M:%S}: {run.name}, {run.page}"
