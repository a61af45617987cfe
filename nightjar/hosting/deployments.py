"""The deployments that a local Prefect server offers, and the work pool that runs them."""

from __future__ import annotations

from contextlib import suppress

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.types.entrypoint import EntrypointType

from flows.evaluation import evaluate
from flows.querying import query

WORK_POOL = "nightjar"


async def register(working_dir: str) -> list[str]:
    """Registers every deployment with the Prefect server that is configured.

    Args:
        working_dir: where runs happen, and write ``./outputs``.

    Returns:
        The deployments' names, ``flow/deployment``.
    """
    async with get_client() as client:
        with suppress(ObjectAlreadyExists):
            await client.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))
    names = []
    for flow in (evaluate, query):
        deployment = await flow.ato_deployment(
            name=flow.name,
            entrypoint_type=EntrypointType.MODULE_PATH,
            work_pool_name=WORK_POOL,
            job_variables={"working_dir": working_dir},
        )
        await deployment.aapply()
        names.append(deployment.full_name)
    return names
