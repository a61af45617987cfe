"""The five stages of an evaluation as Prefect tasks: each is one call into ``nightjar``.

What is left to do is decided by the run's journal, never by Prefect: a shard is run as long as it owes something. One
that owes nothing, and that Prefect has seen end, shows as Cached, with its number of groups.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import State, Task, task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext
from prefect.states import Cancelled

from nightjar import evaluation
from nightjar.config import RunConfig
from nightjar.engine import classify
from nightjar.errors import RunAbortedError, RunCancelledError, WarehouseError
from nightjar.evaluation import Run, Shard
from nightjar.runs import Summary, new_run_id
from nightjar.secrecy import hidden_in_errors
from nightjar.warehouse import Warehouse

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
    task_run_name="load_env {config.env_id}",
    retries=3,
    retry_delay_seconds=[10, 60, 300],
    retry_condition_fn=is_hub_away,
    timeout_seconds=HOUR_SECONDS,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def load_env(config: RunConfig, output_dir: Path | None, resume: str | None, flow_run_id: str) -> Run:
    """Opens the run and works out what is owed. A retried flow run finds its run by its own id."""
    with hidden_in_errors():
        return await asyncio.to_thread(
            evaluation.load_env,
            config,
            output_dir=output_dir,
            resume=resume,
            run_id=new_run_id(UUID(flow_run_id)),
            flow_run_id=flow_run_id,
        )


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
    try:
        with hidden_in_errors():
            return await run.generate(shard)
    except RunCancelledError as stopped:
        return Cancelled(message=str(stopped))


@task(
    name="score",
    task_run_name="score {run.metadata.env_id}, {shard.label}",
    cache_key_fn=_shard_key,
    persist_result=True,
    result_serializer="json",
)
async def _score(run: Run, shard: Shard) -> int | State[int]:
    try:
        with hidden_in_errors():
            return await run.score(shard)
    except RunCancelledError as stopped:
        return Cancelled(message=str(stopped))


async def generate(run: Run, shard: Shard) -> None:
    """Generates the rollouts that a shard owes; after an outage of the endpoint, those that are still owed."""
    await _stage(_generate, run, shard)


async def score(run: Run, shard: Shard) -> None:
    """Scores a shard's groups as they are generated."""
    await _stage(_score, run, shard)


async def _stage(stage: Task[..., Any], run: Run, shard: Shard) -> None:
    """Runs a stage as a task run; where it fails for good, the run is stopped."""
    state = await stage.with_options(refresh_cache=bool(shard.owed))(run, shard, return_state=True)
    if state.is_failed():
        run.stop(await state.aresult(raise_on_failure=False))


@task(task_run_name="aggregate {run.metadata.env_id}", cache_policy=NO_CACHE, persist_result=False)
async def aggregate(run: Run) -> None:
    """Adds the results up."""
    await asyncio.to_thread(run.aggregate)


@task(
    task_run_name="publish {run.metadata.env_id}",
    retries=3,
    retry_delay_seconds=[1, 10, 60],
    retry_condition_fn=is_unpublished,
    timeout_seconds=HOUR_SECONDS,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def publish(run: Run, warehouse: Warehouse, key: str) -> None:
    """Publishes the run into the warehouse, and its aggregates as artifacts."""
    await asyncio.to_thread(evaluation.publish, run.directory, warehouse)
    metadata = run.metadata
    assert metadata.summary is not None, "the run is aggregated"
    title = f"{metadata.env_id} | {metadata.model}: run {metadata.run_id}, {metadata.status}"
    await acreate_table_artifact(key=f"results-{key}", table=_result_table(metadata.summary), description=title)
    if metadata.summary.errors:
        await acreate_markdown_artifact(key=f"errors-{key}", markdown=_error_table(metadata.summary), description=title)
    elif run.opened.before.get("errors"):
        healed = f"No errors any more: what had failed in run {metadata.run_id} was done again, and succeeded."
        await acreate_markdown_artifact(key=f"errors-{key}", markdown=healed, description=title)


def _result_table(summary: Summary) -> list[dict[str, Any]]:
    rows: dict[str, Any] = {"avg_reward": summary.avg_reward, "stderr": summary.stderr, **summary.avg_metrics}
    rows |= {f"pass@{k}": value for k, value in summary.pass_at_k.items()}
    rows |= {f"pass^{k}": value for k, value in summary.pass_all_k.items()}
    rows |= {"scored": summary.scored, "failed": summary.failed, "coverage": summary.coverage}
    return [{"measure": name, "value": value} for name, value in (rows | (summary.usage or {})).items()]


def _error_table(summary: Summary) -> str:
    rows = [
        f"| {count} | {chain} | {summary.error_examples[chain].partition(chr(10))[0].replace('|', '¦')} |"
        for chain, count in summary.errors.items()
    ]
    return "\n".join(["| rollouts | error | one of them |", "| --- | --- | --- |", *rows])
