"""Keeps the message of a cancelled flow run.

Prefect's worker replaces it up to half a minute after the process of the run has ended. Until then, a small process
stays, and restores the message::

    python -m nightjar.flows.cancelling FLOW_RUN_ID MESSAGE
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from uuid import UUID

from prefect import State
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Cancelled

RUN_OF_WORKER = "PREFECT__FLOW_RUN_ID"
"""The variable that a worker sets for the process of a run."""
_OF_WORKER = "Flow run was cancelled successfully."
_MOST_SECONDS = 60.0


def keep_message(state: object) -> None:
    """Starts this process if a flow run of a worker returns a Cancelled state."""
    if not isinstance(state, State) or not state.is_cancelled() or os.environ.get(RUN_OF_WORKER) != flow_run.id:
        return
    subprocess.Popen(  # noqa: S603 - the words are our own
        [sys.executable, "-P", "-m", "nightjar.flows.cancelling", flow_run.id, state.message or ""],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _restore(flow_run_id: UUID, message: str) -> None:
    until = time.monotonic() + _MOST_SECONDS
    async with get_client() as client:
        while time.monotonic() < until:
            state = (await client.read_flow_run(flow_run_id)).state
            if state is not None and state.message == _OF_WORKER:
                await client.set_flow_run_state(flow_run_id, Cancelled(message=message), force=True)
            if state is not None and not state.is_cancelling() and state.message != message:
                return  # restored, or retried
            await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(_restore(UUID(sys.argv[1]), sys.argv[2]))
