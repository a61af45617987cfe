"""Runs that name one endpoint share its limit, on a real Prefect server: the model server counts what is in flight."""

import asyncio
import os
import signal

import pytest
from local_services import POLL_SECONDS
from waiting import until

from nightjar.engine import open_runs
from nightjar.errors import RunCancelledError
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.long]
LIMIT = 8
SLOW = Faults(latency_ms=250)
SHARED = {"env_id": "arithmetic", "endpoint": "shared", "rollouts_per_example": 1, "max_concurrent": 32}


def held(services):
    """Returns, for the model of each run in progress, how many rollouts it may generate at once."""
    chosen = {"tags": {"all_": ["endpoint:shared"]}, "state": {"type": {"any_": ["RUNNING"]}}}
    found = services.call("POST", "/flow_runs/filter", {"flow_runs": chosen})
    return {run["parameters"]["model"]: run["labels"].get("nightjar/endpoint-held", 0) for run in found}


async def seen(services, expected):
    waited = {"told": lambda: held(services), "pause_seconds": POLL_SECONDS}
    await asyncio.to_thread(until, lambda: held(services) == expected, **waited)


async def peaks(server):
    """Returns the peak of concurrent requests until now, and that of the next 1.5 seconds."""
    before = server.stats().peak_in_flight
    server.reset_stats()
    await asyncio.sleep(1.5)
    return before, server.stats().peak_in_flight


@pytest.fixture
async def save():
    """Saves the block that the runs share, and removes it at the end."""
    from nightjar.blocks import ModelEndpoint

    yield lambda server, limit: ModelEndpoint(base_url=server.url, max_concurrent=limit).asave("shared")
    await ModelEndpoint.adelete("shared")


async def test_two_runs_share_the_limit_and_one_takes_what_the_other_frees(services, in_process, save):
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        await save(server, LIMIT)
        first = services.start("evaluate", {**SHARED, "model": "first", "num_examples": 9000})
        await seen(services, {"first": LIMIT})
        second = asyncio.create_task(
            in_process.evaluate(**SHARED, model="second", num_examples=9000, return_state=True)
        )
        await seen(services, {"first": LIMIT // 2, "second": LIMIT // 2})
        assert await peaks(server) == (LIMIT, LIMIT)
        services.cancel(first)
        await seen(services, {"second": LIMIT})
        assert await peaks(server) == (LIMIT, LIMIT)
        [run] = open_runs()
        run.stop(RunCancelledError("seen enough"))
        ended = await second
        assert ended.name == "Cancelled"


async def test_a_waiting_run_can_be_stopped_and_a_killed_run_frees_its_share(services, in_process, save):
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        await save(server, 1)
        first = services.start("evaluate", {**SHARED, "model": "first", "num_examples": 9000})
        await seen(services, {"first": 1})
        waited = await in_process.evaluate(**SHARED, model="waits", timeout_minutes=0.05, return_state=True)
        assert waited.name == "TimedOut"
        assert "5 of 5 rollouts of run" in waited.message
        assert "are missing" in waited.message
        os.kill(services.process_of(first), signal.SIGKILL)
        ended = await in_process.evaluate(**SHARED, model="next", return_state=True)
        assert ended.is_completed(), ended.message
        assert server.stats().peak_in_flight == 1
