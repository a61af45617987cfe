"""``evaluate``: one environment, one model, as a Prefect flow.

Run it::

    nightjar up --detach
    nightjar eval run gsm8k -m gpt-4.1-mini -p openai -n 100
    prefect deployment run evaluate/evaluate -p env_id=gsm8k -p model=gpt-4.1-mini
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from prefect import State, flow, tags
from prefect.runtime import flow_run

from flows.endings import final_state
from flows.naming import artifact_key, flow_run_name, tag_flow_run
from flows.progress import progress_artifact
from flows.run_log import nightjar_log_in_run_log
from nightjar.config import parse_run_config
from nightjar.errors import WarehouseError
from nightjar.evaluation import Outcome, check_warehouse
from nightjar.warehouse import Warehouse, resolve_warehouse
from tasks import evaluation as tasks


@flow(name="evaluate", flow_run_name=flow_run_name, persist_result=False)
async def evaluate(
    env_id: str,
    model: str = "openai/gpt-4.1-mini",
    base_url: str = "https://api.pinference.ai/api/v1",
    api_key_var: str = "PRIME_API_KEY",
    api_client_type: Literal[
        "openai_chat_completions",
        "openai_completions",
        "openai_chat_completions_token",
        "openai_responses",
        "anthropic_messages",
    ] = "openai_chat_completions",
    num_examples: int = 5,
    rollouts_per_example: int = 3,
    env_args: dict[str, Any] = {},  # noqa: B006 - Prefect's form shows it, and nothing changes it
    sampling_args: dict[str, Any] = {},  # noqa: B006
    max_concurrent: int = 32,
    max_retries: int = 0,
    resume: str = "",
    output_dir: str = "",
    warehouse: str = "",
    further: dict[str, Any] = {},  # noqa: B006
) -> State[Outcome]:
    """Evaluates a model in an environment and publishes the results.

    Args:
        env_id: Environment, "name" or "owner/name".
        model: Model, as the endpoint names it.
        base_url: Base URL of the endpoint.
        api_key_var: Name of the environment variable that holds the key, on the machine that runs the flow.
        api_client_type: Protocol of the endpoint.
        num_examples: Examples; -1 for all.
        rollouts_per_example: Rollouts of each example.
        env_args: Arguments of the environment.
        sampling_args: temperature, max_tokens and so on.
        max_concurrent: Requests in flight at the most.
        max_retries: Further attempts at a rollout after errors that can heal.
        resume: A run directory to go on with, or "latest". A retried flow run finds its own.
        output_dir: Folder of run directories; empty for ./outputs.
        warehouse: Folder of the warehouse; empty for NIGHTJAR_WAREHOUSE, or ./outputs/warehouse.
        further: Any other field of nightjar.config.RunConfig.

    Returns:
        Completed, with how the run ended; Failed where rollouts are missing, which is what Retry does then, or where
        the results are not in the warehouse.

    Raises:
        WarehouseError: the warehouse cannot be written; nothing was asked of the model.
    """
    nightjar_log_in_run_log()
    config = parse_run_config(
        {
            **further,
            "env_id": env_id,
            "model": model,
            "base_url": base_url,
            "api_key_var": api_key_var,
            "api_client_type": api_client_type,
            "num_examples": num_examples,
            "rollouts_per_example": rollouts_per_example,
            "env_args": env_args,
            "sampling_args": sampling_args,
            "max_concurrent": max_concurrent,
            "max_retries": max_retries,
        }
    )
    chosen = Warehouse(resolve_warehouse(warehouse))
    check_warehouse(chosen)
    unpublished: Exception | None = None
    with tags(*await tag_flow_run(config)):
        run = await tasks.load_env(config, Path(output_dir) if output_dir else None, resume or None, str(flow_run.id))
        key = artifact_key(config)
        async with run, progress_artifact(run, key):
            async with run.stages() as stages:
                for shard in run.shards:
                    await run.turn(shard)
                    stages.create_task(tasks.generate(run, shard))
                    if run.is_interleaved:
                        stages.create_task(tasks.score(run, shard))
                if not run.is_interleaved:
                    await run.all_generated()
                    for shard in run.shards:
                        stages.create_task(tasks.score(run, shard))
            await tasks.aggregate(run)
            try:
                await tasks.publish(run, chosen, key)
            except WarehouseError as error:
                unpublished = error
    return final_state(Outcome.of(run, chosen, unpublished))
