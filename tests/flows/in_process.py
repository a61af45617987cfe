"""Flow runs of ``evaluate`` in this process, as a worker runs them, and what Prefect's server knows of them.

It imports Prefect: tests get this module from the fixture ``in_process``.
"""

import asyncio

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, FlowRunFilter, FlowRunFilterId
from prefect.flow_engine import run_flow

from nightjar.flows.evaluation import evaluate


async def new_flow_run(**fields):
    async with get_client() as client:
        return await client.create_flow_run(evaluate, **fields)


async def read(flow_run_id):
    async with get_client() as client:
        return await client.read_flow_run(flow_run_id)


async def run_as(flow_run, **parameters):
    """Runs the flow as a given flow run: what a worker does, for the first time or on Retry."""
    parameters = {"env_id": "arithmetic", "model": "m", **parameters}
    return await run_flow(evaluate, flow_run=await read(flow_run.id), parameters=parameters, return_type="state")


async def task_runs(flow_run_id, count):
    """Returns the task runs of a flow run once the server knows that ``count`` of them have ended."""
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    async with get_client() as client:
        for _ in range(600):
            found = await client.read_task_runs(flow_run_filter=chosen, limit=200)
            if len(found) >= count and all(each.state is not None and each.state.is_final() for each in found):
                return found
            await asyncio.sleep(0.1)
    raise AssertionError([(each.name, each.state_name) for each in found])


async def artifact(key):
    async with get_client() as client:
        found = await client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    return max(found, key=lambda each: each.created)
