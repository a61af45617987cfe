"""Schedules of deployments: one a name, made or changed.

They have no parameters: Prefect 3.8 empties those of a schedule that is paused and resumed in its UI.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise

from cronsim import CronSim
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from pydantic import ValidationError

from nightjar.errors import ConfigError
from nightjar.hosting.changes import Change

_LOOKED_AT = 60
_MARGIN = timedelta(hours=2)


@dataclass(frozen=True)
class WantedSchedule:
    """A schedule that a deployment is to have.

    Attributes:
        deployment: ``flow/deployment``.
        name: of the schedule; one of that name is changed.
        cron: when, such as ``0 2 * * *``.
        time_zone: whose time that is, such as ``Europe/Berlin``.
    """

    deployment: str
    name: str
    cron: str
    time_zone: str

    def schedule(self) -> CronSchedule:
        """Returns it as Prefect has it.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            return CronSchedule(cron=self.cron, timezone=self.time_zone)
        except ValidationError as error:
            said = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{self.cron!r} in the time zone {self.time_zone!r} is no schedule: {said}") from None

    def longest_pause(self) -> timedelta:
        """Returns how long after the end of a run the next one has ended, with two hours for its own work."""
        due = [*islice(CronSim(self.cron, datetime.now(UTC)), _LOOKED_AT)]
        return max(after - before for before, after in pairwise(due)) + _MARGIN


async def planned_schedule(client: PrefectClient, wanted: WantedSchedule) -> Change:
    """Returns what gives a deployment a schedule; whether somebody has paused it stays.

    Raises:
        ConfigError: it cannot be read.
    """
    schedule = wanted.schedule()
    what = f"schedule {wanted.name!r} of {wanted.deployment}"
    when = _said(schedule)
    there = await _find(client, wanted)
    if there is None:
        return Change(what, "create", partial(_create, wanted, schedule), (when,))
    if there.schedule == schedule:
        return Change(what, "keep", details=(when,))
    return Change(what, "change", partial(_update, wanted, schedule, there), (f"{_said(there.schedule)} → {when}",))


def _said(schedule: object) -> str:
    """Returns a schedule in words; somebody may have made another kind of it in the UI."""
    return f"cron {schedule.cron}, {schedule.timezone}" if isinstance(schedule, CronSchedule) else repr(schedule)


async def _find(client: PrefectClient, wanted: WantedSchedule) -> DeploymentSchedule | None:
    try:
        deployment = await client.read_deployment_by_name(wanted.deployment)
    except ObjectNotFound:
        return None
    return next((one for one in deployment.schedules if one.slug == wanted.name), None)


async def _create(wanted: WantedSchedule, schedule: CronSchedule, client: PrefectClient) -> None:
    deployment = await client.read_deployment_by_name(wanted.deployment)
    new = DeploymentScheduleCreate(schedule=schedule, active=True, slug=wanted.name)
    await client.create_deployment_schedules(deployment.id, [new])


async def _update(
    wanted: WantedSchedule, schedule: CronSchedule, there: DeploymentSchedule, client: PrefectClient
) -> None:
    deployment = await client.read_deployment_by_name(wanted.deployment)
    await client.update_deployment_schedule(
        deployment.id, there.id, schedule=schedule, parameters=there.parameters, active=there.active
    )
