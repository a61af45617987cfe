"""The automation of Prefect that finds runs on other machines whose heartbeats stopped."""

from __future__ import annotations

from datetime import timedelta

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

from nightjar.hosting.naming import FLOWS

NAME = "Nightjar's runs without heartbeats are Crashed"
_ENDS = ("Completed", "Failed", "TimedOut", "Cancelled", "Crashed")
_WITHIN = timedelta(seconds=120)
"""Four heartbeats (``SETTINGS``); on its own machine ``lost_runs`` finds a run sooner."""


async def install_automation(client: PrefectClient) -> None:
    """Installs it, unless it is there: somebody may have changed it, or switched it off."""
    if await client.read_automations_by_name(NAME):
        return
    trigger = EventTrigger(
        posture=Posture.Proactive,
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{end}" for end in _ENDS)},
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": list(FLOWS)}),
        for_each={"prefect.resource.id"},
        threshold=1,
        within=_WITHIN,
    )
    crashed = ChangeFlowRunState(
        state=StateType.CRASHED, message="Its heartbeats stopped. What it finished is kept; Retry does the rest."
    )
    await client.create_automation(AutomationCore(name=NAME, trigger=trigger, actions=[crashed]))
