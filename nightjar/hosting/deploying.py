"""What ``nightjar deploy`` makes of a server: deployments, and the schedules and notifications of suites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefect.client.orchestration import get_client

from flows.retrying import retry_failed
from flows.upkeep import upkeep
from nightjar.hosting.automations import night_notifications
from nightjar.hosting.changes import Change
from nightjar.hosting.deployments import carry_out, deployment_name, of_suite, planned_deployments
from nightjar.hosting.naming import prefixed
from nightjar.hosting.schedules import WantedSchedule, planned_schedule


@dataclass(frozen=True)
class Wanted:
    """What a server is to have.

    Attributes:
        folder: of the deployments.
        prefix, is_taken_over: as for ``planned_deployments``.
        suite: the file of a suite that is to be scheduled, below the folder; None for none.
        cron: when it is due.
        gate: the file of the policy that its nights are held against, below the folder; None for none that is new.
        retry_cron, upkeep_cron: when what failed is retried, and the warehouse looked after; None for no schedule.
        time_zone: whose time these are.
        notify: the block of Prefect's notifications that is told of its nights, as ``slack-webhook/team``.
    """

    folder: Path
    prefix: str = ""
    is_taken_over: bool = False
    suite: Path | None = None
    cron: str | None = None
    gate: Path | None = None
    retry_cron: str | None = None
    upkeep_cron: str | None = None
    time_zone: str = "UTC"
    notify: str | None = None


async def deploy(wanted: Wanted, confirm: Callable[[Sequence[Change]], bool]) -> bool:
    """Changes the server that is configured into one that has what is wanted.

    Args:
        wanted: what that is.
        confirm: is shown what would become of each thing, and says whether to go on.

    Returns:
        Whether it was confirmed.

    Raises:
        ServiceError: another folder has registered the deployments.
        ConfigError: a schedule or block is wrong.
    """
    suite = None if wanted.suite is None else of_suite(wanted.suite, wanted.gate)
    suites = [] if suite is None else [suite]
    async with get_client() as client:
        changes = await planned_deployments(
            client, wanted.folder, wanted.prefix, suites, is_taken_over=wanted.is_taken_over
        )
        if suite is not None and wanted.cron is not None:
            schedule = WantedSchedule(deployment_name(suite, wanted.prefix), suite.name, wanted.cron, wanted.time_zone)
            changes.append(await planned_schedule(client, schedule))
            if wanted.notify is not None:
                changes += await night_notifications(client, suite.name, schedule.longest_pause(), wanted.notify)
        for flow, cron in ((retry_failed, wanted.retry_cron), (upkeep, wanted.upkeep_cron)):
            if cron is not None:
                name = f"{flow.name}/{prefixed(flow.name, wanted.prefix)}"
                changes.append(await planned_schedule(client, WantedSchedule(name, flow.name, cron, wanted.time_zone)))
        is_confirmed = confirm(changes)
        if is_confirmed:
            await carry_out(client, changes)
    return is_confirmed
