"""Direct mode: the five stages in this process, without Prefect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nightjar.config import RunConfig
from nightjar.engine import Shard, seldom_collected, task_group
from nightjar.errors import RunError, WarehouseError
from nightjar.evaluation import stages
from nightjar.evaluation.run import Run
from nightjar.runs import Summary
from nightjar.warehouse import Warehouse


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        path: its run directory.
        metadata: the content of its ``metadata.json``.
        summary: its aggregates.
        warehouse: where it is published.
        error: what stopped it before its end; None where it came to its end.
        unpublished: why it is not in the warehouse, with the command that publishes it later; None where it is there.
    """

    path: Path
    metadata: dict[str, Any]
    summary: Summary
    warehouse: str
    error: BaseException | None = None
    unpublished: WarehouseError | None = None

    @classmethod
    def of(cls, run: Run, warehouse: Warehouse, unpublished: WarehouseError | None = None) -> Self:
        """Returns how a run ended that is aggregated and, unless there is a reason, published."""
        assert run.summary is not None, "the run is aggregated"
        metadata = run.directory.read_metadata()
        return cls(run.directory.path, metadata, run.summary, warehouse.location, run.error, unpublished)

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.path.name

    @property
    def status(self) -> str:
        """``completed``, ``incomplete``, ``failed`` or ``cancelled``."""
        return str(self.metadata["status"])


async def evaluate(
    config: RunConfig,
    *,
    warehouse: Warehouse,
    output_dir: Path | None = None,
    resume: str | None = None,
) -> Outcome:
    """Runs an evaluation to its end and publishes it, also when an error or somebody stops it.

    A warehouse that breaks meanwhile does not cost the results: they are on disk, and the outcome says why they are not
    published.

    Args:
        config: what to run.
        warehouse: where to publish.
        output_dir, resume: as for ``stages.load_env``.

    Raises:
        ConfigError: the run cannot be started as asked for.
        RunError: the run directory cannot be used.
        WarehouseError: the warehouse cannot be written; nothing was asked of the model.
    """
    stages.check_warehouse(warehouse)
    run = stages.load_env(config, output_dir=output_dir, resume=resume)
    try:
        error = await run_shards(run, stages.generate, stages.score)
        stages.aggregate(run, error)
        unpublished = _publish(run, warehouse)
    finally:
        await run.close()
    if isinstance(error, Exception) and not isinstance(error, RunError):
        raise error
    return Outcome.of(run, warehouse, unpublished)


def _publish(run: Run, warehouse: Warehouse) -> WarehouseError | None:
    try:
        stages.publish(run.directory, warehouse)
    except WarehouseError as error:
        return error
    return None


async def run_shards(
    run: Run,
    generate: Callable[[Run, Shard], Awaitable[object]],
    score: Callable[[Run, Shard], Awaitable[object]],
) -> BaseException | None:
    """Generates and scores all shards, side by side or, without interleaving, one after the other.

    Args:
        run: an open run.
        generate, score: the stages, bare or as Prefect tasks.

    Returns:
        What stopped the run before its end: an error that concerns all of it, or its cancellation.
    """
    try:
        with seldom_collected():
            async with task_group() as tasks:
                for shard in run.shards:
                    tasks.create_task(_wrapped(generate(run, shard)))
                    if run.config.interleave_scoring:
                        tasks.create_task(_wrapped(score(run, shard)))
            if not run.config.interleave_scoring:
                async with task_group() as tasks:
                    for shard in run.shards:
                        tasks.create_task(_wrapped(score(run, shard)))
    except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 - what is finished is published all the same
        return error
    return None


async def _wrapped(stage: Awaitable[object]) -> None:
    await stage
