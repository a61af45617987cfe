"""The automations of Prefect that Nightjar installs: for runs whose heartbeats stop, and for what nights come to.

What is there already stays as it is: somebody may have changed it, or switched it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ActionTypes, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound

from nightjar.errors import ConfigError
from nightjar.hosting.changes import Change
from nightjar.hosting.naming import FLOWS

_ENDS = ("Completed", "Failed", "TimedOut", "Cancelled", "Crashed")
_WITHIN = timedelta(seconds=120)
"""Four heartbeats (``SETTINGS``); on its own machine ``lost_runs`` finds a run sooner."""
_VERDICTS = {f"nightjar.night.{verdict}" for verdict in ("accepted", "worse", "incomplete")}


async def dead_runs(client: PrefectClient) -> Change:
    """Returns what installs the automation that finds runs on other machines whose heartbeats stopped."""
    trigger = EventTrigger(
        posture=Posture.Proactive,
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{end}" for end in _ENDS)},
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_of_flows(FLOWS),
        for_each={"prefect.resource.id"},
        threshold=1,
        within=_WITHIN,
    )
    crashed = ChangeFlowRunState(
        state=StateType.CRASHED, message="Its heartbeats stopped. What it finished is kept; Retry does the rest."
    )
    return await _installed(client, "Nightjar's runs without heartbeats are Crashed", trigger, crashed)


async def night_notifications(client: PrefectClient, suite: str, within: timedelta, block: str) -> list[Change]:
    """Returns what installs the automations that tell people of the nights of a suite.

    Args:
        client: of the server.
        suite: its name.
        within: so soon after the end of a night the next one has ended.
        block: of Prefect's notifications, as ``slack-webhook/team``.

    Raises:
        ConfigError: there is no such block.
    """
    block_id = await _block(client, block)
    of_suite = ResourceSpecification({"prefect.resource.id": f"nightjar.suite.{suite}"})
    verdict = EventTrigger(posture=Posture.Reactive, expect=_VERDICTS, match=of_suite, threshold=1, within=timedelta(0))
    failed = EventTrigger(
        posture=Posture.Reactive,
        expect={f"prefect.flow-run.{end}" for end in ("Failed", "TimedOut", "Crashed")},
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_of_flows(["benchmark"]),
        threshold=1,
        within=timedelta(0),
    )
    missing = EventTrigger(
        posture=Posture.Proactive,
        after=_VERDICTS,
        expect=_VERDICTS,
        match=of_suite,
        for_each={"prefect.resource.id"},
        threshold=1,
        within=within,
    )
    said = SendNotification(
        block_document_id=block_id,
        subject="{{ event.payload.suite }} {{ event.payload.night }}: {{ event.payload.verdict }}",
        body="{{ event.payload.line }}",
    )
    broken = SendNotification(
        block_document_id=block_id,
        subject="A night failed",
        body="{{ flow_run.name }} is {{ flow_run.state.name }}: {{ flow_run.state.message }}",
    )
    absent = SendNotification(
        block_document_id=block_id,
        subject=f"A night of {suite} is missing",
        body=f"No night of {suite} has ended for {within}. Look at: nightjar status, nightjar nights --suite {suite}",
    )
    return [
        await _installed(client, f"Nightjar: what nights of {suite} come to", verdict, said),
        await _installed(client, f"Nightjar: a night of {suite} is missing", missing, absent),
        await _installed(client, "Nightjar: a night failed", failed, broken),
    ]


def _of_flows(names: Sequence[str]) -> ResourceSpecification:
    return ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": list(names)})


async def _installed(client: PrefectClient, name: str, trigger: EventTrigger, action: ActionTypes) -> Change:
    if await client.read_automations_by_name(name):
        return Change(f"automation {name!r}", "keep")
    automation = AutomationCore(name=name, trigger=trigger, actions=[action])
    return Change(f"automation {name!r}", "create", partial(_create, automation))


async def _create(automation: AutomationCore, client: PrefectClient) -> None:
    await client.create_automation(automation)


async def _block(client: PrefectClient, block: str) -> UUID:
    kind, _, name = block.partition("/")
    try:
        return (await client.read_block_document_by_name(name, kind, include_secrets=False)).id
    except ObjectNotFound:
        raise ConfigError(
            f"There is no notification block {block!r}. The UI makes one (Blocks, such as Slack Webhook, Email Server "
            "or Custom Webhook); name it as TYPE/NAME, such as slack-webhook/team"
        ) from None
