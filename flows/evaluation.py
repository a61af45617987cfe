"""``evaluate``: one environment, one model, as a Prefect flow.

Run it::

    nightjar up --detach
    nightjar eval run gsm8k -m gpt-4.1-mini -p openai -n 100
    prefect deployment run evaluate/evaluate -p env_id=gsm8k -p model=gpt-4.1-mini
"""

from __future__ import annotations

import re
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from flows.progress import progress_artifact
from flows.run_log import nightjar_log_in_run_log
from nightjar.config import RunConfig, takes_fields
from nightjar.errors import RunError
from nightjar.evaluation import Run, Shard, run_shards, stages
from nightjar.warehouse import Warehouse, resolve_warehouse
from tasks import evaluation as tasks
from tasks.evaluation import live


@flow(name="evaluate", flow_run_name="{env_id} | {model}", persist_result=False)
@takes_fields()
async def evaluate(config: RunConfig, resume: str = "", output_dir: str = "", warehouse: str = "") -> str:
    """Evaluates a model in an environment and publishes the results.

    Args:
        config: What to run; its fields are parameters of the flow.
        resume: A run directory to go on with, or "latest". A retried flow run finds its own.
        output_dir: Folder of run directories; empty for ./outputs.
        warehouse: Folder of the warehouse; empty for NIGHTJAR_WAREHOUSE, or ./outputs/warehouse.

    Returns:
        The id of the run.

    Raises:
        RunError: rollouts are missing; Retry does only these.
        WarehouseError: the warehouse cannot be written; unless it broke meanwhile, nothing was asked of the model.
    """
    nightjar_log_in_run_log()
    folder = Path(output_dir) if output_dir else None
    chosen = Warehouse(resolve_warehouse(warehouse))
    stages.check_warehouse(chosen)
    run = await tasks.load_env(live(config), folder, resume or None, str(flow_run.id))
    key = re.sub(r"[^a-z0-9]+", "-", f"{config.env_id}-{config.model}".lower()).strip("-")
    try:
        async with progress_artifact(run, key):
            stopped_by = await run_shards(run, _generate, _score)
        summary = await tasks.aggregate(live(run), live(stopped_by))
        metadata = run.directory.read_metadata()
        await tasks.publish(live(run.directory), live(chosen), metadata, key)
    finally:
        await run.close()
    if run.error is not None:
        raise run.error
    if metadata["status"] != "completed":
        missing = f"{summary.rollouts - summary.scored} of {summary.rollouts} rollouts"
        raise RunError(
            f"{missing} of run {run.run_id} are missing. Retry, or --resume {run.directory.path}, does only these."
        )
    return run.run_id


async def _generate(run: Run, shard: Shard) -> None:
    await tasks.generate(live(run), live(shard))


async def _score(run: Run, shard: Shard) -> None:
    await tasks.score(live(run), live(shard))
