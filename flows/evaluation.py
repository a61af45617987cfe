"""``evaluate``: one environment, one model, as a Prefect flow.

Run it::

    nightjar up --detach
    export PREFECT_API_URL=http://127.0.0.1:4200/api
    nightjar eval run gsm8k -m gpt-4.1-mini -p openai -n 100
    prefect deployment run evaluate/evaluate -p env_id=gsm8k -p model=gpt-4.1-mini
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from prefect import State, flow, tags
from prefect.runtime import flow_run

from flows.endings import final_state, refused
from flows.named_blocks import Named, WarehouseName, named_blocks
from flows.naming import artifact_key, flow_run_name, forget_parameter, label_flow_run, tag_flow_run
from flows.progress import progress_artifact
from flows.run_log import nightjar_log_in_run_log, send_run_log
from flows.shared_limit import shared_limit
from nightjar import __version__
from nightjar.config import After, RunConfig, takes_fields
from nightjar.errors import NightjarError, WarehouseError
from nightjar.evaluation import Outcome, check_warehouse, fetch_part, stopped_by_signals, within_budget
from nightjar.sandboxes.permission import sandbox_access
from nightjar.warehouse import Warehouse
from tasks import evaluation as tasks


@flow(name="evaluate", version=__version__, flow_run_name=flow_run_name, persist_result=False)
@takes_fields()
async def evaluate(
    config: RunConfig,
    endpoint: Annotated[str, After("provider")] = "",
    secrets: Annotated[str, After("env_args")] = "",
    allow_sandbox_access: Annotated[bool, After("secrets")] = False,
    warehouse: Annotated[WarehouseName, After("tags")] = "",
    resume: Annotated[str, After("warehouse")] = "",
    where: Annotated[str, After("resume")] = "",
    output_dir: Annotated[str, After("env_dir_path")] = "",
) -> State[Outcome]:
    """Evaluates a model in an environment and publishes the results.

    Args:
        config: What to run; its fields are parameters of the flow.
        endpoint: Name of a ModelEndpoint block, which says in a provider's place base URL, protocol, key, headers and
            limits.
        secrets: Name of an EnvironmentSecrets block, whose variables the environment, tools and judges of this run see.
        allow_sandbox_access: Let the environment make sandboxes, in which it runs what the model writes.
        warehouse: Where results go: a location, or block:NAME for that of a ResultsWarehouse block; empty for
            NIGHTJAR_WAREHOUSE, or ./outputs/warehouse.
        resume: A run directory to go on with, or "latest". A retried flow run finds its own.
        where: Of a run that is gone on with, only the failed rollouts for which this SQL condition holds, such as
            error = 'RateLimitError', over columns of the table rollouts; empty for all that is missing. The next Retry
            does all again.
        output_dir: Folder of run directories; empty for ./outputs.

    Returns:
        Completed, with how the run ended; Failed where it could not begin, or where rollouts are missing, which is what
        Retry does then, or where the results are not in the warehouse; Cancelled, or TimedOut, where it was stopped.
    """
    nightjar_log_in_run_log()
    try:
        async with named_blocks(config, endpoint, secrets, warehouse) as named:
            with sandbox_access(is_allowed=allow_sandbox_access):
                state = await _evaluate(named, endpoint, resume, where, output_dir)
    except NightjarError as error:
        state = refused(error)
    await send_run_log()
    return state


async def _evaluate(named: Named, endpoint: str, resume: str, where: str, output_dir: str) -> State[Outcome]:
    config, warehouse = named.config, Warehouse(named.location)
    folder = Path(output_dir) if output_dir else None
    with tags(*await tag_flow_run(config, endpoint)):
        check_warehouse(warehouse)
        await asyncio.to_thread(fetch_part, config, warehouse, folder)
        if where:
            await forget_parameter("where")
        with within_budget([config], warehouse):
            run = await tasks.load_env(config, folder, resume or None, where, str(flow_run.id))
        await label_flow_run(run, named.location)
        key = artifact_key(config)
        async with stopped_by_signals(), run, progress_artifact(run, key):
            async with shared_limit(run, endpoint, named.limit), run.stages() as stages:
                async for shard in run.in_turn():
                    stages.create_task(tasks.generate(run, shard))
                    if run.is_interleaved:
                        stages.create_task(tasks.score(run, shard))
                if not run.is_interleaved:
                    async for shard in run.all_generated():
                        stages.create_task(tasks.score(run, shard))
            await tasks.aggregate(run)
            try:
                await tasks.publish(run, warehouse, key)
            except WarehouseError as error:
                run.unpublished = error
            await tasks.push(run)
    return final_state(Outcome.of(run, warehouse))
