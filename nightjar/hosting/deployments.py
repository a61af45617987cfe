"""The deployments and the work pool that runs them: declared here, for ``nightjar up`` and deployments/prefect.yaml.

A test compares that file with what stands here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.types.entrypoint import EntrypointType

from flows.evaluation import evaluate
from flows.querying import query


class Deployment(NamedTuple):
    """A flow that is started by its name; the deployment is called as the flow is."""

    flow: Flow[..., Any]
    description: str


WORK_POOL = WorkPoolCreate(name="nightjar", type="process")  # runs are processes on a worker's machine
DEPLOYMENTS = (
    Deployment(evaluate, "One environment, one model; results in the warehouse."),
    Deployment(query, "A question to the warehouse; the answer is a table artifact."),
)


async def register(working_dir: str) -> list[str]:
    """Registers the work pool and every deployment with the Prefect server that is configured.

    Args:
        working_dir: where runs happen, and write ``./outputs``.

    Returns:
        The deployments' names, ``flow/deployment``.
    """
    async with get_client() as client:
        with suppress(ObjectAlreadyExists):
            await client.create_work_pool(WORK_POOL)
    names = []
    for flow, description in DEPLOYMENTS:
        deployment = await flow.ato_deployment(
            name=flow.name,
            description=description,
            entrypoint_type=EntrypointType.MODULE_PATH,
            work_pool_name=WORK_POOL.name,
            job_variables={"working_dir": working_dir},
        )
        await deployment.aapply()
        names.append(deployment.full_name)
    return names
