"""Flow runs that owe something: which there are, and how one is done again by the worker that did it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prefect import State, task
from prefect.artifacts import acreate_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.runtime import flow_run
from prefect.states import Scheduled

from tasks.away import SERVER_IS_AWAY, note

logger = logging.getLogger("nightjar.prefect")

_PAGE = 200
_LOOK_SECONDS = 3.0
_OWING = (StateType.FAILED, StateType.CRASHED)


async def earlier_under_way() -> str | None:
    """Returns the name of a run of this flow that began earlier and has not ended; None where there is none."""
    async with get_client() as client:
        own = await client.read_flow_run(UUID(str(flow_run.id)))
        running = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])))
        others = await _of_flow(client, str(flow_run.flow_name), running)
    began = own.start_time or datetime.now(UTC), str(own.id)
    earlier = (each for each in others if each.start_time and (each.start_time, str(each.id)) < began)
    return next((each.name for each in earlier), None)


async def owing_since(hours: float, suite: str) -> list[FlowRun]:
    """Returns the runs of ``evaluate`` that failed or crashed, the earliest first.

    Args:
        hours: that were due within so many hours.
        suite: of this suite alone; empty for all.
    """
    chosen = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_OWING))),
        expected_start_time=FlowRunFilterExpectedStartTime(after_=datetime.now(UTC) - timedelta(hours=hours)),
        tags=FlowRunFilterTags(all_=[f"suite:{suite}"]) if suite else None,
    )
    async with get_client() as client:
        return await _of_flow(client, "evaluate", chosen)


async def read(flow_run_id: UUID) -> FlowRun:
    """Returns a flow run as it is now; ``ObjectNotFound`` where the server knows none of that id."""
    async with get_client() as client:
        return await client.read_flow_run(flow_run_id)


@task(task_run_name="retry {name}", cache_policy=NO_CACHE, persist_result=False)
async def retry(flow_run_id: UUID, name: str, wait_minutes: float) -> None:
    """Has a worker do what is owed of a run of a deployment, as the same flow run, and waits so long for its end."""
    until = time.monotonic() + 60 * wait_minutes
    async with get_client() as client:
        again: State[None] = Scheduled(name="AwaitingRetry", message=f"Retry from {flow_run.name!r}")
        proposed = await client.set_flow_run_state(flow_run_id, again)
    if proposed.status.value != "ACCEPT":
        logger.error("Prefect's server does not let run %r be retried: %s", name, proposed.details)
        return
    while time.monotonic() < until:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            found = await read(flow_run_id)
            note(away=False)
        except SERVER_IS_AWAY:
            note(away=True)
            continue
        if found.state is None or found.state.is_final():
            return


async def show_retried(rows: Sequence[dict[str, str]], about: str) -> None:
    """Leaves a table of what was retried, and how each ended, as an artifact."""
    await acreate_table_artifact(table=list(rows), key="retry-failed", description=about)


async def _of_flow(client: PrefectClient, flow_name: str, chosen: FlowRunFilter) -> list[FlowRun]:
    found: list[FlowRun] = []
    named = FlowFilter(name=FlowFilterName(any_=[flow_name]))
    sort = FlowRunSort.EXPECTED_START_TIME_ASC
    while page := await client.read_flow_runs(
        flow_filter=named, flow_run_filter=chosen, sort=sort, limit=_PAGE, offset=len(found)
    ):
        found.extend(page)
    return found
