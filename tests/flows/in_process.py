"""Flow runs of ``evaluate`` in this process, as a worker runs them, and what Prefect's server knows of them.

It imports Prefect: tests get this module from the fixture ``in_process``.
"""

import asyncio
import os

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, FlowRunFilter, FlowRunFilterId
from prefect.flow_engine import run_flow
from prefect.flows import load_flow_from_flow_run

from nightjar.core.process_ids import process_host
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


async def run_deployed(services, deployment, **parameters):
    """Runs a deployment in this process, as its worker does, and returns the flow run."""
    body = {"parameters": parameters, "state": {"type": "PENDING"}}  # so that no worker takes it
    path = f"/deployments/name/{deployment if '/' in deployment else f'{deployment}/{deployment}'}"
    created = services.call("POST", f"/deployments/{services.call('GET', path)['id']}/create_flow_run", body)
    services.call("PATCH", f"/flow_runs/{created['id']}", {"infrastructure_pid": f"{process_host()}:{os.getpid()}"})
    flow_run = await read(created["id"])
    flow = await load_flow_from_flow_run(flow_run, use_placeholder_flow=False)
    await run_flow(flow, flow_run=flow_run, return_type="state")
    return services.flow_run(created["id"])


async def task_runs(flow_run_id, count):
    """Returns the task runs of a flow run once the server knows that ``count`` of them have ended."""
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    async with get_client() as client:
        for _ in range(400):
            found = await client.read_task_runs(flow_run_filter=chosen, limit=200)
            if len(found) >= count and all(each.state is not None and each.state.is_final() for each in found):
                return found
            await asyncio.sleep(0.3)
    raise AssertionError([(each.name, each.state_name) for each in found])


async def artifact(key):
    async with get_client() as client:
        found = await client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    return max(found, key=lambda each: each.created)
