"""Runs a flow run in a container: ``python -P -m nightjar.hosting.container_run``, for work pools of type docker.

Prefect's own command, ``prefect flow-run execute``, runs a flow in a copy of the folder, which is lost with the
container. This one runs it in the folder. If the flow run is cancelled or the container is stopped, the run ends as on
any worker: it publishes its finished rollouts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from uuid import UUID

import psutil
from prefect.flows import load_flow_from_flow_run
from prefect.runner._flow_run_executor import FlowRunExecutorContext
from prefect.runner._starter_engine import EngineCommandStarter

from nightjar.flows.cancelling import RUN_OF_WORKER
from nightjar.hosting.active_runs import message_keepers

_KEEPER_SECONDS = 60.0


async def _run(flow_run_id: UUID) -> bool:
    """Returns whether the container was stopped while the run was in progress."""
    async with FlowRunExecutorContext() as context:
        flow_run = await context.client.read_flow_run(flow_run_id)
        starter = EngineCommandStarter(control_channel=context.control_channel, isolate_process_group=True)
        executor = context.create_executor(flow_run, starter, load_flow_from_flow_run, propose_submitting=False)
        stopping: list[asyncio.Task[None]] = []

        def stop() -> None:
            stopping.append(asyncio.create_task(context.process_manager.kill(flow_run_id)))

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await executor.submit()
        return bool(stopping)


if __name__ == "__main__":
    is_stopped = asyncio.run(_run(UUID(os.environ[RUN_OF_WORKER])))
    if not is_stopped:
        psutil.wait_procs([*message_keepers()], timeout=_KEEPER_SECONDS)  # they would end with the container
