"""What ``nightjar deploy`` makes of a server: deployments, and the schedules and notifications of suites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefect.client.orchestration import get_client

from nightjar.hosting.automations import night_notifications
from nightjar.hosting.changes import Change
from nightjar.hosting.deployments import DEPLOYMENTS, carry_out, deployment_name, planned_deployments
from nightjar.hosting.schedules import WantedSchedule, planned_schedule


@dataclass(frozen=True)
class Wanted:
    """What a server is to have.

    Attributes:
        folder: of the deployments.
        prefix, is_taken_over: as for ``planned_deployments``.
        suite: the file of a suite that is to be scheduled, below the folder; None for none.
        cron, time_zone: when.
        notify: the block of Prefect's notifications that is told of its nights, as ``slack-webhook/team``.
    """

    folder: Path
    prefix: str = ""
    is_taken_over: bool = False
    suite: Path | None = None
    cron: str | None = None
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
    async with get_client() as client:
        changes = await planned_deployments(client, wanted.folder, wanted.prefix, is_taken_over=wanted.is_taken_over)
        if wanted.suite is not None and wanted.cron is not None:
            schedule = _schedule(wanted, wanted.suite, wanted.cron)
            changes.append(await planned_schedule(client, schedule))
            if wanted.notify is not None:
                pause = schedule.longest_pause()
                changes += await night_notifications(client, wanted.suite.stem, pause, wanted.notify)
        is_confirmed = confirm(changes)
        if is_confirmed:
            await carry_out(client, changes)
    return is_confirmed


def _schedule(wanted: Wanted, suite: Path, cron: str) -> WantedSchedule:
    [benchmark] = (each for each in DEPLOYMENTS if each.flow.name == "benchmark")
    name = deployment_name(benchmark, wanted.prefix)
    return WantedSchedule(name, suite.stem, cron, wanted.time_zone, {"suite": str(suite)})
