"""Nights of a suite with Prefect: a flow run for each evaluation, and what a person is told at the end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import acreate_markdown_artifact
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun
from prefect.deployments.flow_runs import arun_deployment
from prefect.events import emit_event
from prefect.states import Cancelling, Scheduled
from prefect.utilities.urls import url_for

from nightjar.config import Evaluation
from nightjar.evaluation.nights import NightPlan
from nightjar.reports.nights import night_report
from nightjar.warehouse.storage.nights import Night
from tasks.away import SERVER_IS_AWAY, note

logger = logging.getLogger("nightjar.night")

_POLL_SECONDS = 2.0
_CANCEL_SECONDS = 60.0


async def submit(plan: NightPlan, evaluation: Evaluation, deployment: str, parameters: dict[str, Any]) -> UUID:
    """Hands an evaluation of a night to the work pool, and returns its flow run.

    One that was handed to it before stays that one: it is waited for, or done again as with Retry where it has ended
    without being complete. It is no subflow: those of a flow run that was cancelled are cancelled by the server for
    ever, and could not be retried.

    Args:
        plan: of the night.
        evaluation: one of it.
        deployment: ``evaluate/NAME``.
        parameters: of the flow, beside those of the configuration.
    """
    key = plan.key(evaluation)
    async with get_client() as client:
        by_key = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
        for begun in await client.read_flow_runs(flow_run_filter=by_key):
            if begun.state is None or begun.state.is_final():
                await client.set_flow_run_state(begun.id, Scheduled(name="AwaitingRetry"), force=True)
            return begun.id
    flow_run = await arun_deployment(
        deployment,
        parameters={**evaluation.config.model_dump(mode="json"), **parameters},
        flow_run_name=plan.title(evaluation),
        timeout=0,
        tags=plan.tags,
        idempotency_key=key,
        as_subflow=False,
    )
    return flow_run.id


async def wait_for(flow_run_ids: Sequence[UUID], told_to_stop: asyncio.Event) -> dict[UUID, str]:
    """Waits until flow runs have ended, and logs how each does; told to stop, it cancels them, and waits a minute.

    Returns:
        What their last states say.
    """
    ended: dict[UUID, str] = {}
    left = None
    while len(ended) < len(flow_run_ids) and (left is None or left > 0):
        if left is not None:
            left -= _POLL_SECONDS
        elif told_to_stop.is_set() and await _cancel(flow_run_ids):
            left = _CANCEL_SECONDS
        for run in await _newly_ended(set(flow_run_ids) - ended.keys()):
            assert run.state is not None, "it has ended"
            ended[run.id] = run.state.message or run.state.name or ""
            logger.info("%s is %s: %s", run.name, run.state.name, run.state.message)
        await asyncio.sleep(_POLL_SECONDS)
    return ended


async def _newly_ended(flow_run_ids: set[UUID]) -> list[FlowRun]:
    try:
        async with get_client() as client:
            runs = await _read(client, flow_run_ids)
        note(away=False)
    except SERVER_IS_AWAY:
        note(away=True)
        return []
    return [run for run in runs if run.state is not None and run.state.is_final()]


async def _read(client: PrefectClient, flow_run_ids: Iterable[UUID]) -> list[FlowRun]:
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=list(flow_run_ids)))
    return await client.read_flow_runs(flow_run_filter=chosen) if chosen.id and chosen.id.any_ else []


async def _cancel(flow_run_ids: Sequence[UUID]) -> bool:
    """Cancels flow runs, and says whether the server could be told so."""
    try:
        async with get_client() as client:
            for run in await _read(client, flow_run_ids):
                if run.state is None or not run.state.is_final():
                    await client.set_flow_run_state(run.id, Cancelling())
    except SERVER_IS_AWAY:
        note(away=True)
        return False
    return True


async def show_night(night: Night) -> None:
    """Makes the artifact of a night, and tells of one that has ended in an event, which automations wait for.

    The event is ``nightjar.night.VERDICT`` on the resource ``nightjar.suite.NAME``; its payload has the date and the
    verdict in a line.
    """
    report = night_report(night, lambda flow_run_id: url_for("flow-run", flow_run_id))
    key = re.sub(r"[^a-z0-9]+", "-", f"night-{night.suite}".lower()).strip("-")
    await acreate_markdown_artifact(report, key=key, description=night.line)
    if night.verdict == "running":
        return
    emit_event(
        event=f"nightjar.night.{night.verdict}",
        resource={"prefect.resource.id": f"nightjar.suite.{night.suite}", "prefect.resource.name": night.suite},
        payload={"suite": night.suite, "night": night.night, "verdict": night.verdict, "line": night.line},
    )
