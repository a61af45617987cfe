"""Changes of schedules and automations on a Prefect server. The changes are shown before they are made.

An existing automation is left unchanged: a user may have edited it or switched it off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from typing import Any, Literal, TypeAlias
from uuid import UUID

from cronsim import CronSim
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.actions import ActionTypes, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from pydantic import ValidationError

from nightjar.errors import ConfigError
from nightjar.hosting.active_runs import WITHOUT_HEARTBEATS
from nightjar.hosting.server import FLOWS

Make: TypeAlias = Callable[[PrefectClient], Awaitable[object]]


@dataclass(frozen=True)
class Change:
    """A change of an object on the server. If the object stays unchanged, ``make`` is None."""

    what: str
    kind: Literal["create", "change", "keep"]
    make: Make | None = None
    details: tuple[str, ...] = ()


_ENDS = ("Completed", "Failed", "TimedOut", "Cancelled", "Crashed")
_WITHIN = timedelta(seconds=120)
"""Four heartbeats (``HEARTBEATS``). ``LostRuns`` finds a lost run on its own machine sooner."""
_SETTLED = timedelta(seconds=30)
"""Within this time, ``LostRuns`` corrects the state of a run on its machine."""
_VERDICTS = {f"nightjar.night.{verdict}" for verdict in ("accepted", "worse", "incomplete")}
_FLOW_RUNS = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
_MISSING: dict[str, Any] = {"posture": Posture.Proactive, "for_each": {"prefect.resource.id"}, "threshold": 1}
"""Settings of a trigger that fires if an event is not followed in time by another event of the same resource."""


async def dead_runs(client: PrefectClient) -> Change:
    """Returns the automation that marks runs on other machines as Crashed when their heartbeats stop."""
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{end}" for end in _ENDS)},
        match=_FLOW_RUNS,
        match_related=_of_flows(FLOWS),
        within=_WITHIN,
        **_MISSING,
    )
    crashed = ChangeFlowRunState(
        state=StateType.CRASHED, message=f"{WITHOUT_HEARTBEATS} Finished rollouts are kept; Retry resumes it."
    )
    return await _installed(client, "Nightjar's runs without heartbeats are Crashed", trigger, crashed)


async def night_notifications(client: PrefectClient, suite: str, within: timedelta, block: str) -> list[Change]:
    """Returns the automations that notify people through a Prefect block, such as ``slack-webhook/team``.

    ``within`` is the longest time between the ends of two consecutive nights.
    """
    message = partial(SendNotification, block_document_id=await _block(client, block))
    of_suite = ResourceSpecification({"prefect.resource.id": f"nightjar.suite.{suite}"})
    verdict = EventTrigger(expect=_VERDICTS, match=of_suite, posture=Posture.Reactive, threshold=1, within=timedelta(0))
    verdict_message = message(
        subject="{{ event.payload.suite }} {{ event.payload.night }}: {{ event.payload.verdict }}",
        body="{{ event.payload.line }}",
    )
    missing = EventTrigger(after=_VERDICTS, expect=_VERDICTS, match=of_suite, within=within, **_MISSING)
    missing_message = message(
        subject=f"A night of {suite} is missing",
        body=f"No night of {suite} has ended for {within}. See: nightjar status, nightjar nights --suite {suite}",
    )
    failed = EventTrigger(
        after={f"prefect.flow-run.{end}" for end in ("Failed", "TimedOut", "Crashed")},
        expect={"prefect.flow-run.Running"},  # a run that was wrongly marked as Crashed
        match=_FLOW_RUNS,
        match_related=_of_flows(["benchmark"]),
        within=_SETTLED,
        **_MISSING,
    )
    failed_message = message(
        subject="A night failed",
        body="{{ flow_run.name }} is {{ flow_run.state.name }}: {{ flow_run.state.message }}",
    )
    return [
        await _installed(client, f"Nightjar: what nights of {suite} come to", verdict, verdict_message),
        await _installed(client, f"Nightjar: a night of {suite} is missing", missing, missing_message),
        await _installed(client, "Nightjar: a night failed", failed, failed_message),
    ]


def _of_flows(names: Sequence[str]) -> ResourceSpecification:
    return ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": list(names)})


async def _installed(client: PrefectClient, name: str, trigger: EventTrigger, action: ActionTypes) -> Change:
    if await client.read_automations_by_name(name):
        return Change(f"automation {name!r}", "keep")
    automation = AutomationCore(name=name, trigger=trigger, actions=[action])
    return Change(f"automation {name!r}", "create", lambda client: client.create_automation(automation))


async def _block(client: PrefectClient, block: str) -> UUID:
    kind, _, name = block.partition("/")
    try:
        return (await client.read_block_document_by_name(name, kind, include_secrets=False)).id
    except ObjectNotFound:
        raise ConfigError(
            f"There is no notification block {block!r}. Create one in the UI (Blocks, such as Slack Webhook, Email "
            "Server or Custom Webhook) and name it as TYPE/NAME, such as slack-webhook/team"
        ) from None


_LOOKED_AT = 60
_MARGIN = timedelta(hours=2)


def cron_schedule(cron: str, time_zone: str) -> CronSchedule:
    """Raises ``ConfigError`` if ``cron`` or ``time_zone`` is invalid."""
    try:
        return CronSchedule(cron=cron, timezone=time_zone)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{cron!r} in the time zone {time_zone!r} is not a valid schedule: {reason}") from None


def longest_pause(cron: str) -> timedelta:
    """Returns the longest time between two nights, plus two hours in which a night may run."""
    due = [*islice(CronSim(cron, datetime.now(UTC)), _LOOKED_AT)]
    return max(after - before for before, after in pairwise(due)) + _MARGIN


async def planned_schedule(client: PrefectClient, full_name: str, name: str, schedule: CronSchedule) -> Change:
    """Returns the change that makes or updates a schedule of a ``flow/deployment``. A paused schedule stays paused.

    The schedule has no parameters, because Prefect 3.8 clears them when the schedule is paused and resumed in the UI.
    """
    what, when = f"schedule {name!r} of {full_name}", _described(schedule)
    try:
        deployment = await client.read_deployment_by_name(full_name)
        there = next((one for one in deployment.schedules if one.slug == name), None)
    except ObjectNotFound:  # an earlier change creates it
        there = None
    if there is None:
        return Change(what, "create", partial(_create_schedule, full_name, name, schedule), (when,))
    if there.schedule == schedule:
        return Change(what, "keep", details=(when,))
    update = partial(
        PrefectClient.update_deployment_schedule,
        deployment_id=deployment.id,
        schedule_id=there.id,
        schedule=schedule,
        parameters=there.parameters,
        active=there.active,
    )
    return Change(what, "change", update, (f"{_described(there.schedule)} → {when}",))


def _described(schedule: object) -> str:
    return f"cron {schedule.cron}, {schedule.timezone}" if isinstance(schedule, CronSchedule) else repr(schedule)


async def _create_schedule(full_name: str, name: str, schedule: CronSchedule, client: PrefectClient) -> None:
    deployment = await client.read_deployment_by_name(full_name)
    new = DeploymentScheduleCreate(schedule=schedule, active=True, slug=name)
    await client.create_deployment_schedules(deployment.id, [new])
