"""The stages of an evaluation as Prefect tasks: each is one call into ``nightjar``.

The flow ``evaluate`` puts the tasks in order. Your own flow can do the same (docs/guides/prefect.md)::

    run = load_env.submit(RunConfig(env_id="gsm8k", model="gpt-4.1-mini")).result()
    with run:
        generated = generate.with_options(retries=5).map(unmapped(run), run.shards)
        wait([*generated, *score.map(unmapped(run), run.shards)])
        aggregate.submit(run).result()
        publish.submit(run).result()

The run's journal, not Prefect, decides what remains to be done: a shard runs as long as some of its rollouts remain. A
complete shard that Prefect has seen end is shown as Cached, with its number of groups.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid5

import orjson
from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext
from prefect.runtime import flow_run
from prefect.states import Cancelled

from nightjar import evaluation
from nightjar.clients.failures import classify
from nightjar.core.secrecy import hidden_in_errors
from nightjar.engine import Run, Shard
from nightjar.engine.runs import RunMetadata, new_run_id
from nightjar.errors import (
    HubError,
    RunAbortedError,
    RunCancelledError,
    RunConflictError,
    RunDirectoryError,
    UnscoredError,
    WarehouseError,
    error_chain,
)
from nightjar.evaluation.config import RunConfig
from nightjar.tasks.artifacts import artifact_key, show_run
from nightjar.tasks.away import tell
from nightjar.tasks.sent_environments import receive
from nightjar.warehouse import PublishReport, Warehouse

P = ParamSpec("P")
R = TypeVar("R")
RetryCondition: TypeAlias = Callable[[Task[..., Any], TaskRun, State[Any]], bool]
_HEALING_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504})


def when(can_heal: Callable[[BaseException], bool]) -> RetryCondition:
    """Returns a retry condition for a whole stage; inside a stage, the engine retries."""

    def condition(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001 - Prefect's
        return isinstance(state.data, BaseException) and can_heal(state.data)

    return condition


def is_away(error: BaseException) -> bool:
    """Returns whether a host did not answer (``load_env``): a dataset's hub or a package index."""
    return classify(error).is_retryable


def is_outage(error: BaseException) -> bool:
    """Returns whether an endpoint stopped answering after it had answered (``generate`` and ``score``)."""
    return isinstance(error, UnscoredError) or (isinstance(error, RunAbortedError) and error.is_outage)


def is_unwritten(error: BaseException) -> bool:
    """Returns whether the disk could not be written (``aggregate``); damage is not retried."""
    return isinstance(error, RunDirectoryError) and isinstance(error.__cause__, OSError)


def is_unpublished(error: BaseException) -> bool:
    return isinstance(error, WarehouseError) and not isinstance(error, RunConflictError)


def is_hub_away(error: BaseException) -> bool:
    """Returns whether the Hugging Face Hub did not answer, or failed itself (``push``)."""
    return isinstance(error, HubError) and any(map(_is_of_network, error_chain(error)))


def _is_of_network(cause: BaseException) -> bool:
    status = getattr(getattr(cause, "response", None), "status_code", None)
    return status in _HEALING_STATUSES or isinstance(cause, ConnectionError | TimeoutError | socket.gaierror)


def _stage(
    name: str, can_heal: Callable[[BaseException], bool], delays: list[float], **options: Any
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Task[P, Coroutine[Any, Any, R]]]:
    """Makes a stage a Prefect task, which is retried after ``delays`` in seconds. By default, no result is stored."""
    return task(
        task_run_name=name,
        retries=len(delays),
        retry_delay_seconds=delays,
        retry_condition_fn=when(can_heal),
        **{"cache_policy": NO_CACHE, "persist_result": False, **options},
    )


_AT_MOST_AN_HOUR = {"timeout_seconds": 3600}
_OUTAGE_DELAYS = [30.0, 120.0, 600.0]
_HOST_DELAYS = [10.0, 60.0, 300.0]
_DISK_DELAYS = [1.0, 10.0, 60.0]


def _shard_key(context: TaskRunContext, parameters: dict[str, Any]) -> str | None:
    run, shard = parameters["run"], parameters["shard"]
    if shard.remaining and not context.task.refresh_cache:
        return None
    return f"nightjar-{run.run_id}-{context.task.name}-{shard.first}-{shard.last}"


_CACHED = {
    "cache_policy": CachePolicy.from_cache_key_fn(_shard_key),
    "persist_result": True,
    "result_serializer": "json",
}


@_stage("load_env {config.env_id}", is_away, _HOST_DELAYS, **_AT_MOST_AN_HOUR)
async def load_env(
    config: RunConfig,
    output_dir: str | Path | None = None,
    resume: str | None = None,
    where: str = "",
    run_id: str | None = None,
) -> Run:
    """Loads the environment, opens the run directory, and finds the remaining rollouts.

    Args:
        config: what to run.
        output_dir: folder of run directories. If None, ``./outputs`` is used.
        resume: run directory to resume, or ``"latest"``. If None, a new run starts.
        where: when resuming, retry only the failed rollouts that match this SQL condition.
        run_id: id of the run. By default the id is made of the flow run's id and the configuration, so that a retried
            flow run finds its runs again. Outside of a flow the id is random.

    Returns:
        The run. Close it with ``with`` or ``async with``.

    Raises:
        ConfigError: the run cannot start with these settings.
        RunError: the run directory cannot be used.
    """
    folder = None if output_dir is None else Path(output_dir)
    flow_run_id = flow_run.id and str(flow_run.id)
    with hidden_in_errors():
        await receive(config.env_source)
        return await asyncio.to_thread(
            evaluation.load_env,
            config,
            output_dir=folder,
            resume=resume,
            where=where,
            run_id=run_id or _run_id(config, flow_run_id),
            flow_run_id=flow_run_id,
        )


def _run_id(config: RunConfig, flow_run_id: str | None) -> str:
    if flow_run_id is None:
        return new_run_id()
    asked = orjson.dumps(config.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return new_run_id(uuid5(NAMESPACE_OID, f"{UUID(flow_run_id)} {asked.decode()}"))


@_stage("generate {run.metadata.env_id}, {shard.label}", is_outage, _OUTAGE_DELAYS, **_CACHED)
async def generate(run: Run, shard: Shard) -> int | State[int]:
    """Generates the remaining rollouts of a shard; a retry after an outage generates the rollouts that still remain.

    Args:
        run: result of ``load_env``.
        shard: one of ``run.shards``.

    Returns:
        The number of groups; the state Cancelled if the run was stopped.
    """
    return await _unless_stopped(run.generate(shard))


@_stage("score {run.metadata.env_id}, {shard.label}", is_outage, _OUTAGE_DELAYS, **_CACHED)
async def score(run: Run, shard: Shard) -> int | State[int]:
    """Scores the groups of a shard as they are generated; a retry scores unscored groups without calling the model.

    Args:
        run: result of ``load_env``.
        shard: one of ``run.shards``; it must be generated before, or at the same time.

    Returns:
        The number of groups; the state Cancelled if the run was stopped.
    """
    return await _unless_stopped(_scored(run, shard))


async def _scored(run: Run, shard: Shard) -> int:
    count = await run.score(shard)
    run.check_scored(shard)
    return count


async def _unless_stopped(stage: Awaitable[int]) -> int | State[int]:
    try:
        with hidden_in_errors():
            return await stage
    except RunCancelledError as stopped:
        return Cancelled(message=str(stopped))


@_stage("aggregate {run.metadata.env_id}", is_unwritten, _DISK_DELAYS)
async def aggregate(run: Run) -> RunMetadata:
    """Aggregates the results and writes ``metadata.json``.

    Returns:
        The metadata of the run; ``.summary`` has average reward, metrics, errors and usage.
    """
    return await asyncio.to_thread(run.aggregate)


@_stage("publish {run.metadata.env_id}", is_unpublished, _DISK_DELAYS, **_AT_MOST_AN_HOUR)
async def publish(run: Run, warehouse: Warehouse | str | None = None, key: str = "") -> PublishReport:
    """Publishes the run into the warehouse and creates its artifacts in Prefect.

    Args:
        run: the aggregated run.
        warehouse: the warehouse or its location. If None, the value of ``NIGHTJAR_WAREHOUSE`` is used, else
            ``./outputs/warehouse``.
        key: last part of the artifacts' keys. If empty, environment and model are used.

    Raises:
        WarehouseError: the warehouse cannot be written. The message has the command that publishes the run later.
    """
    place = Warehouse.of(warehouse)
    report = await asyncio.to_thread(evaluation.publish, run.directory, place)
    await tell(lambda: show_run(run, place, key or artifact_key(run.metadata)))
    return report


@_stage("push {run.metadata.env_id}", is_hub_away, _HOST_DELAYS, **_AT_MOST_AN_HOUR)
async def push(run: Run, name: str | None = None, is_public: bool = False) -> str:
    """Pushes the run to the Hugging Face Hub and returns its URL.

    Args:
        run: the aggregated run.
        name: dataset name. If None, the name in the configuration is used, else a generated name.
        is_public: whether a new dataset is public.

    Raises:
        HubError: the Hub does not accept the results. The message has the command that pushes the run later.
    """
    with hidden_in_errors():
        return await asyncio.to_thread(evaluation.push_run, run, name, is_public=is_public)
