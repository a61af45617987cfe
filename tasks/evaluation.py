"""The five stages of an evaluation as Prefect tasks: each is one call into ``nightjar``.

What is left to do is decided by the run's journal, never by Prefect: a shard is run as long as it owes something. One
that owes nothing, and that Prefect has seen end, shows as Cached, with its number of groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.context import TaskRunContext
from prefect.states import Cancelled, Failed

from nightjar import evaluation
from nightjar.config import RunConfig
from nightjar.engine import classify
from nightjar.errors import NightjarError, RunAbortedError, RunCancelledError, RunError, WarehouseError
from nightjar.evaluation import Run, Shard
from nightjar.runs import new_run_id
from nightjar.secrecy import hidden_in_errors
from nightjar.warehouse import Warehouse
from tasks.artifacts import show_run
from tasks.away import unless_away
from tasks.sent_environments import receive

HOUR_SECONDS = 3600


def is_hub_away(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001 - Prefect's
    """Says whether an environment may load the next time: the hub of its dataset did not answer."""
    return isinstance(state.data, Exception) and classify(state.data).is_retryable


def is_outage(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001 - Prefect's
    """Says whether generation was stopped by an endpoint that has answered before and does not any more."""
    return isinstance(state.data, RunAbortedError) and state.data.is_outage


def is_unpublished(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001 - Prefect's
    """Says whether the warehouse could not be written."""
    return isinstance(state.data, WarehouseError)


def _shard_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    run, shard = parameters["run"], parameters["shard"]
    return f"nightjar-{run.run_id}-{context.task.name}-{shard.first}-{shard.last}"


@task(
    name="load_env",
    task_run_name="load_env {config.env_id}",
    retries=3,
    retry_delay_seconds=[10, 60, 300],
    retry_condition_fn=is_hub_away,
    timeout_seconds=HOUR_SECONDS,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def _load_env(
    config: RunConfig, output_dir: Path | None, resume: str | None, where: str, flow_run_id: str
) -> Run | State[Run]:
    try:
        return await _open(config, output_dir, resume, where, flow_run_id)
    except NightjarError as error:
        if classify(error).is_retryable:
            raise
        return Failed(message=str(error), data=error)  # without the traceback that Prefect logs of what is raised


async def _open(config: RunConfig, output_dir: Path | None, resume: str | None, where: str, flow_run_id: str) -> Run:
    with hidden_in_errors():
        await receive(config.env_source)
        return await asyncio.to_thread(
            evaluation.load_env,
            config,
            output_dir=output_dir,
            resume=resume,
            where=where,
            run_id=new_run_id(UUID(flow_run_id)),
            flow_run_id=flow_run_id,
        )


async def load_env(config: RunConfig, output_dir: Path | None, resume: str | None, where: str, flow_run_id: str) -> Run:
    """Opens the run and works out what is owed. A retried flow run finds its run by its own id."""
    state: State[Any] = await _load_env(config, output_dir, resume, where, flow_run_id, return_state=True)  # type: ignore[misc]
    try:
        run: Run = await state.aresult()
    except ConcurrencySlotAcquisitionError:  # a server that is busy did not let the task begin
        return await _open(config, output_dir, resume, where, flow_run_id)
    return run


@task(
    name="generate",
    task_run_name="generate {run.metadata.env_id}, {shard.label}",
    retries=3,
    retry_delay_seconds=[30, 120, 600],
    retry_condition_fn=is_outage,
    cache_key_fn=_shard_key,
    persist_result=True,
    result_serializer="json",
)
async def _generate(run: Run, shard: Shard) -> int | State[int]:
    return await _unless_stopped(run.generate(shard))


@task(
    name="score",
    task_run_name="score {run.metadata.env_id}, {shard.label}",
    cache_key_fn=_shard_key,
    persist_result=True,
    result_serializer="json",
)
async def _score(run: Run, shard: Shard) -> int | State[int]:
    return await _unless_stopped(run.score(shard))


async def _unless_stopped(stage: Awaitable[int]) -> int | State[int]:
    try:
        with hidden_in_errors():
            return await stage
    except RunCancelledError as stopped:
        return Cancelled(message=str(stopped))


async def generate(run: Run, shard: Shard) -> None:
    """Generates the rollouts that a shard owes; after an outage of the endpoint, those that are still owed."""
    await _stage(run, partial(_as_task, _generate, run, shard), partial(run.generate, shard))


async def score(run: Run, shard: Shard) -> None:
    """Scores a shard's groups as they are generated."""
    await _stage(run, partial(_as_task, _score, run, shard), partial(run.score, shard))


async def _stage(run: Run, told: Callable[[], Awaitable[Any]], alone: Callable[[], Awaitable[Any]]) -> None:
    """Runs a stage; where it fails for good, the run is stopped."""
    try:
        await unless_away(told, alone)
    except RunCancelledError:
        return
    except RunError as error:
        run.stop(error)


async def _as_task(stage: Task[..., Any], run: Run, shard: Shard) -> None:
    state = await stage.with_options(refresh_cache=bool(shard.owed))(run, shard, return_state=True)
    if not state.is_cancelled():
        await state.aresult()


@task(name="aggregate", task_run_name="aggregate {run.metadata.env_id}", cache_policy=NO_CACHE, persist_result=False)
async def _aggregate(run: Run) -> None:
    await asyncio.to_thread(run.aggregate)


async def aggregate(run: Run) -> None:
    """Adds the results up."""
    await unless_away(partial(_aggregate, run), partial(asyncio.to_thread, run.aggregate))


@task(
    name="publish",
    task_run_name="publish {run.metadata.env_id}",
    retries=3,
    retry_delay_seconds=[1, 10, 60],
    retry_condition_fn=is_unpublished,
    timeout_seconds=HOUR_SECONDS,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def _publish(run: Run, warehouse: Warehouse, key: str) -> None:
    await asyncio.to_thread(evaluation.publish, run.directory, warehouse)
    await show_run(run, warehouse, key)


async def publish(run: Run, warehouse: Warehouse, key: str) -> None:
    """Publishes the run into the warehouse, and shows it in artifacts."""
    alone = partial(asyncio.to_thread, evaluation.publish, run.directory, warehouse)
    await unless_away(partial(_publish, run, warehouse, key), alone)


async def push(run: Run) -> None:
    """Pushes the run to the Hugging Face Hub where its configuration says so."""
    with hidden_in_errors():
        await asyncio.to_thread(evaluation.push_run, run)
