"""``nightjar status``: what ``nightjar up`` runs, and what is under way."""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse.output import number, print_json
from nightjar.hosting.status import DeploymentStatus, RunStatus, ScheduleStatus, ServiceStatus, Status, read_status

_INDENT = 13


def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what 'nightjar up' runs: server, worker, deployments, schedules, and the runs under way.

    Exit code 1 where no server answers, or a process of 'nightjar up' is not running, or it left them behind itself.
    """
    found = read_status()
    show = print_json if as_json else _print_status
    show(found)
    is_left_over = bool(found.services) and found.supervisor_pid is None
    are_running = all(service.is_running for service in found.services)
    raise typer.Exit(int(is_left_over or not (found.is_answering and are_running)))


def _print_status(found: Status) -> None:
    if found.api_url is None:
        echo("Nothing is running. Start it with: nightjar up --detach")
        return
    lines = {
        "Server": f"{found.api_url.removesuffix('/api')} {'answers' if found.is_answering else 'does not answer'}",
        "Web view": found.view_url or "",
        "Services": _line(_services(found)),
        "Work pool": f"{found.work_pool}, {(found.work_pool_status or 'not there').lower()}",
        "Deployments": _line([_deployment(each) for each in found.deployments]),
        "Schedules": _line([_schedule(each) for each in found.schedules]) or "none",
        "Under way": _line([_run(each) for each in found.runs]) or "no run",
        "Log": found.log,
    }
    for label, text in lines.items():
        if text:
            echo(f"{label + ':':<{_INDENT}}{text}")


def _line(texts: list[str]) -> str:
    """Returns a line each, under one another."""
    return f"\n{'':<{_INDENT}}".join(texts)


def _services(found: Status) -> list[str]:
    if found.supervisor_pid is not None:
        return [_service(each, "is not running, and is started again") for each in found.services]
    left = [_service(each, "is not running") for each in found.services]
    return ["'nightjar up' does not run" + (": its next start replaces these" if left else ""), *left]


def _service(service: ServiceStatus, otherwise: str) -> str:
    restarts = f", started again {number(service.restarts, 'time')}" if service.restarts else ""
    running = f"process {service.pid}" if service.is_running else otherwise
    return f"{service.name}: {running}{restarts}"


def _deployment(deployment: DeploymentStatus) -> str:
    notes = [
        f"in {deployment.folder}" if deployment.folder else "",
        f"{deployment.concurrency_limit} at once" if deployment.concurrency_limit else "",
        "paused" if deployment.is_paused else "",
    ]
    return ", ".join([deployment.name, *filter(None, notes)])


def _schedule(schedule: ScheduleStatus) -> str:
    due = f"next {schedule.next_at.astimezone():%Y-%m-%d %H:%M:%S}" if schedule.next_at else "no run is due"
    return f"{schedule.deployment}: {schedule.when}, {due if schedule.is_active else 'paused'}"


def _run(run: RunStatus) -> str:
    return f"{run.state.lower()} since {run.since.astimezone():%H:%M:%S}: {run.name}, {run.page}"
