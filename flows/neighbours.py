"""The other nights of a suite: one that was due meanwhile, and one that is still under way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Container
from datetime import UTC, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterType,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.runtime import flow_run

logger = logging.getLogger("nightjar.night")

_NIGHT = "nightjar/night"
_LOOK_SECONDS = 5.0
_MOST_RUNS = 200
_DUE = (StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING)
_UNDER_WAY = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


async def date_of_night(asked: str) -> str:
    """Returns the date of this flow run's night: the one that was asked for, or that on which it was due.

    A schedule's date is that in its time zone. It is written down on the flow run, so that a Retry on another day is of
    the same night.
    """
    async with get_client() as client:
        own = await client.read_flow_run(UUID(str(flow_run.id)))
        if _NIGHT in own.labels:
            return str(own.labels[_NIGHT])
        due = (own.expected_start_time or datetime.now(UTC)).astimezone(await _zone(client, own))
        night = asked or due.date().isoformat()
        await client.update_flow_run_labels(own.id, {_NIGHT: night})
    return night


async def _zone(client: PrefectClient, run: FlowRun) -> ZoneInfo | None:
    """Returns the time zone of the schedule that made a run; None for that of this machine."""
    if run.deployment_id is None or run.created_by is None or not run.auto_scheduled:
        return None
    for schedule in await client.read_deployment_schedules(run.deployment_id):
        if schedule.id == run.created_by.id:
            return ZoneInfo(getattr(schedule.schedule, "timezone", None) or "UTC")
    return None


async def later_due() -> datetime | None:
    """Returns when a later run of this one's schedule was due, up to now: after a time away several are at once."""
    async with get_client() as client:
        own = await client.read_flow_run(UUID(str(flow_run.id)))
        if not own.auto_scheduled or own.created_by is None or own.expected_start_time is None:
            return None
        due = [
            other.expected_start_time
            for other in await _of_flow(client, _DUE)
            if other.created_by is not None
            and other.created_by.id == own.created_by.id
            and other.expected_start_time is not None
            and own.expected_start_time < other.expected_start_time <= datetime.now(UTC)
        ]
    return max(due, default=None)


async def wait_for_earlier(suite: str, stuck_minutes: float) -> list[str]:
    """Waits while earlier runs of this suite go on; one in which nothing moves is stuck, and not waited for.

    Args:
        suite: path of its file, the parameter of the flow.
        stuck_minutes: so long nothing may move.

    Returns:
        The nights that are stuck.
    """
    stuck: dict[UUID, str] = {}
    signs: object = None
    since = time.monotonic()
    while (earlier := await _earlier(suite, stuck)) is not None:
        seen = [earlier.id, await _signs(earlier)]
        if seen != signs:
            signs, since = seen, time.monotonic()
            logger.info("Night %s is still running: this one waits for it", _name(earlier))
        elif time.monotonic() - since > stuck_minutes * 60:
            logger.warning("Night %s is stuck: nothing has moved for %g minutes", _name(earlier), stuck_minutes)
            stuck[earlier.id] = _name(earlier)
        await asyncio.sleep(_LOOK_SECONDS)
    return list(stuck.values())


async def _earlier(suite: str, stuck: Container[UUID]) -> FlowRun | None:
    """Returns the run of the suite that goes on for longest and is not stuck."""
    async with get_client() as client:
        own = await client.read_flow_run(UUID(str(flow_run.id)))
        mine = own.start_time or datetime.now(UTC), str(own.id)
        for other in await _of_flow(client, _UNDER_WAY):
            is_earlier = other.start_time is not None and (other.start_time, str(other.id)) < mine
            if is_earlier and other.id not in stuck and other.parameters.get("suite") == suite:
                return other
    return None


async def _of_flow(client: PrefectClient, types: tuple[StateType, ...]) -> list[FlowRun]:
    return await client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=["benchmark"])),
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
        limit=_MOST_RUNS,
    )


async def _signs(night: FlowRun) -> list[object]:
    """Returns what changes as long as a night gets anywhere: states of its runs, and how far each is."""
    own = [tag for tag in night.tags if tag.startswith(("suite:", "night:"))]
    async with get_client() as client:
        of_night = FlowRunFilter(tags=FlowRunFilterTags(all_=own)) if own else None
        runs = await client.read_flow_runs(flow_run_filter=of_night) if of_night else []
        progress = await client.read_artifacts(
            artifact_filter=ArtifactFilter(
                flow_run_id=ArtifactFilterFlowRunId(any_=[run.id for run in runs]),
                type=ArtifactFilterType(any_=["progress"]),
            )
        )
    return [*sorted((str(run.id), str(run.state_id)) for run in runs), *sorted(str(one.data) for one in progress)]


def _name(night: FlowRun) -> str:
    return str(night.labels.get(_NIGHT, night.name))
