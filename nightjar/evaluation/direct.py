"""Direct mode, which runs the five stages of a run in this process, without Prefect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nightjar.engine import Run
from nightjar.environments import Environment
from nightjar.errors import HubError, RunError, WarehouseError
from nightjar.evaluation.config import Evaluation, RunConfig
from nightjar.evaluation.costs import within_budget
from nightjar.evaluation.hub import push_run, wants_push
from nightjar.evaluation.loading import load_env
from nightjar.evaluation.outcome import Outcome
from nightjar.evaluation.publishing import check_warehouse, fetch_part, publish
from nightjar.warehouse import Warehouse
from nightjar.warehouse.writing.packing import shared_tidying


async def evaluate(
    config: RunConfig,
    *,
    warehouse: Warehouse,
    output_dir: Path | None = None,
    resume: str | None = None,
    where: str = "",
    env: Environment | None = None,
    on_open: Callable[[Run], None] | None = None,
) -> Outcome:
    """Runs an evaluation and publishes it, even if it fails or is stopped. For other arguments, see ``load_env``.

    ``on_open`` is called with the run before its first request. Raises ``WarehouseError`` before any request is made.
    If the warehouse fails later, the outcome says so.
    """
    check_warehouse(warehouse)
    fetch_part(config, warehouse, output_dir)
    with within_budget([config], warehouse):
        run = load_env(config, output_dir=output_dir, resume=resume, where=where, env=env)
    if on_open is not None:
        on_open(run)
    return await run_stages(run, warehouse)


async def run_stages(opened: Run, warehouse: Warehouse) -> Outcome:
    async with opened as run:
        async with run.stages() as stages:
            async for shard in run.in_turn():
                stages.create_task(run.generate(shard))
                if run.is_interleaved:
                    stages.create_task(run.score(shard))
            if not run.is_interleaved:
                async for shard in run.all_generated():
                    stages.create_task(run.score(shard))
        run.aggregate()
        try:
            publish(run.directory, warehouse)
        except WarehouseError as error:
            run.unpublished = error
        if wants_push(run):
            try:
                push_run(run)
            except HubError as error:
                run.unpushed = error
    if isinstance(run.error, Exception) and not isinstance(run.error, RunError):
        raise run.error
    return Outcome.of(run, warehouse)


@dataclass(frozen=True)
class EndedEvaluation:
    evaluation: Evaluation
    outcome: Outcome | None = None
    error: Exception | None = None

    @property
    def is_complete(self) -> bool:
        return self.outcome is not None and self.outcome.is_complete


async def evaluate_together(
    evaluations: Sequence[Evaluation],
    evaluate: Callable[[RunConfig], Awaitable[Outcome]],
    on_end: Callable[[EndedEvaluation], None],
) -> list[EndedEvaluation]:
    """Runs evaluations concurrently and returns how each ended, in the given order. A failure does not stop others."""

    async def run(evaluation: Evaluation) -> EndedEvaluation:
        try:
            ended = EndedEvaluation(evaluation, outcome=await evaluate(evaluation.config))
        except Exception as error:  # noqa: BLE001 - it concerns this evaluation alone
            ended = EndedEvaluation(evaluation, error=error)
        on_end(ended)
        return ended

    with shared_tidying():
        return await asyncio.gather(*map(run, evaluations))
