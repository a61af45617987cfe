"""Direct mode: the five stages of a run in this process, without Prefect."""

from __future__ import annotations

from pathlib import Path

from nightjar.config import RunConfig
from nightjar.engine import Run
from nightjar.errors import RunError, WarehouseError
from nightjar.evaluation.budgets import within_budget
from nightjar.evaluation.hub import push_run
from nightjar.evaluation.loading import load_env
from nightjar.evaluation.outcome import Outcome
from nightjar.evaluation.publishing import check_warehouse, fetch_part, publish
from nightjar.warehouse import Warehouse


async def evaluate(
    config: RunConfig,
    *,
    warehouse: Warehouse,
    output_dir: Path | None = None,
    resume: str | None = None,
    where: str = "",
) -> Outcome:
    """Runs an evaluation to its end and publishes it, also when an error or somebody stops it.

    A warehouse that breaks meanwhile does not cost the results: they are on disk, and the outcome says why they are not
    published.

    Args:
        config: what to run.
        warehouse: where to publish.
        output_dir, resume, where: as for ``load_env``.

    Raises:
        ConfigError: the run cannot be started as asked for.
        RunError: the run directory cannot be used.
        WarehouseError: the warehouse cannot be written; nothing was asked of the model.
    """
    check_warehouse(warehouse)
    fetch_part(config, warehouse, output_dir)
    with within_budget([config], warehouse):
        run = load_env(config, output_dir=output_dir, resume=resume, where=where)
    return await carry_out(run, warehouse)


async def carry_out(opened: Run, warehouse: Warehouse) -> Outcome:
    """Takes an open run through its stages, closes it and publishes it; as ``evaluate``, which opens it too."""
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
        push_run(run)
    if isinstance(run.error, Exception) and not isinstance(run.error, RunError):
        raise run.error
    return Outcome.of(run, warehouse)
