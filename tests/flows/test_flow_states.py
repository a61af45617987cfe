"""What a flow run looks like in Prefect: its name, its tasks on a retry, why it failed, what it ends with."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from hub_server import HubServer
from local_services import wait_for_answers

from nightjar.errors import (
    ConfigError,
    DatasetError,
    HubError,
    RunAbortedError,
    RunConflictError,
    RunDirectoryError,
    WarehouseError,
)  # fmt: skip
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.long]


@pytest.fixture(scope="module")
def tasks():
    from nightjar.tasks import evaluation

    return evaluation


def results():
    [path] = Path().glob("outputs/evals/*/*/results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


async def task_states(in_process, flow_run, count):
    """Returns the names of a flow run's tasks by state, once the server knows so many of them to have ended."""
    states = {}
    for each in await in_process.task_runs(flow_run.id, count):
        states.setdefault(each.state.name, []).append(each.name.split()[0])
    return states


async def test_a_retry_of_a_failed_run_repeats_only_the_failed_rollouts(in_process):
    """Its state and an artifact say why it failed; on the retry, complete shards show as cached."""
    flow_run = await in_process.new_flow_run(name="before the release")
    size = {"num_examples": 32, "rollouts_per_example": 1, "request_retries": 0, "max_shards": 16}
    with ModelServer(ArithmeticSolver(), faults=Faults(rate_500=0.04, seed=3)) as server:
        asked = {"model": "why", "base_url": server.url, **size}
        first = await in_process.run_as(flow_run, **asked)
        failed = 32 - server.stats().answered
    assert first.is_failed()
    assert 0 < failed < 6
    assert [row["reward"] for row in results() if row["error"]] == [None] * failed
    assert f"{failed} of 32 rollouts failed with ModelError -> InternalServerError (model API). " in first.message
    assert "What to do (model API): " in first.message
    table = (await in_process.artifact("errors-arithmetic-why")).data
    assert f"| {failed} | model API | ModelError -> InternalServerError | " in table

    with ModelServer(ArithmeticSolver(), port=server.port) as server:
        assert (await in_process.run_as(flow_run, **asked)).is_completed()
        assert server.stats().answered == failed
    assert [row["reward"] for row in results()] == [1.0] * 32  # of one run directory: the retry found its own
    assert Warehouse("outputs/warehouse").query("SELECT status, scored FROM runs").rows == [("completed", 32)]
    assert "were retried and succeeded" in (await in_process.artifact("errors-arithmetic-why")).data
    cached = (await task_states(in_process, flow_run, 2 * (3 + 32)))["Cached"]
    assert cached.count("generate") == cached.count("score") >= 16 - failed


async def test_generation_continues_when_the_endpoint_is_back(in_process, tasks, monkeypatch):
    monkeypatch.setattr(tasks.generate, "retry_delay_seconds", [2, 2, 2])
    size = {"num_examples": 200, "rollouts_per_example": 1, "max_concurrent": 4, "max_shards": 8}
    flow_run = await in_process.new_flow_run()
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=20)) as server:
        running = asyncio.ensure_future(in_process.run_as(flow_run, base_url=server.url, model="away", **size))
        await asyncio.to_thread(wait_for_answers, server, 40)
        assert not running.done()
        answered = server.stats().answered
    await asyncio.sleep(1.0)  # nobody answers: generation is stopped, and Prefect waits
    with ModelServer(ArithmeticSolver(), port=server.port) as server:
        state = await running
        assert state.is_completed(), state.message
        assert server.stats().answered <= 200 - answered + 8


@pytest.mark.parametrize(("created", "shown"), [
    ({"name": "before the release"}, "before the release"), ({"name": "blue-green"}, "blue-green"),
    ({"auto_scheduled": True, "name": "crafty-otter"}, "arithmetic | m"),
])  # fmt: skip
async def test_a_run_of_a_deployment_keeps_its_name_unless_a_schedule_made_it(in_process, created, shown):
    from prefect.context import FlowRunContext

    from nightjar.flows.flow_runs import flow_run_name

    async with in_process.get_client() as client:
        deployment = await client.read_deployment_by_name("evaluate/evaluate")
    flow_run = (await in_process.new_flow_run()).model_copy(update={"deployment_id": deployment.id, **created})
    with FlowRunContext.model_construct(flow_run=flow_run, parameters={"env_id": "arithmetic", "model": "m"}):
        assert flow_run_name() == shown


@pytest.fixture
def hub(own_folder, monkeypatch, http_server):
    hub = HubServer("hf_ThisIsTheTokenOfAnn", http_server)
    monkeypatch.setenv("HF_HOME", str(own_folder / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    return hub


async def pushed(in_process, **named):
    """Returns a flow run that pushed its results, and its state."""
    flow_run = await in_process.new_flow_run()
    with ModelServer(ArithmeticSolver()) as server:
        asked = {"base_url": server.url, "num_examples": 2, "save_to_hf_hub": True, **named}
        state = await in_process.run_as(flow_run, **asked)
    assert state.is_completed(), state.message
    return flow_run, state


async def test_a_push_is_a_task_that_is_retried_after_an_outage_of_the_hub(in_process, tasks, hub, monkeypatch):
    hub.refusals = [(503, "busy")]
    monkeypatch.setenv("HF_TOKEN", hub.token)
    monkeypatch.setattr(tasks.push, "retry_delay_seconds", [0.2])
    flow_run, state = await pushed(in_process)
    assert (await state.aresult()).hub_url.startswith(hub.url)
    assert "push" in (await task_states(in_process, flow_run, 6))["Completed"]


async def test_a_publisher_block_names_the_dataset_and_holds_the_token(in_process, hub):
    from nightjar.blocks import HubPublisher

    await HubPublisher(repo_name="ann/nightly", token=hub.token, private=False).asave("nightly")
    await pushed(in_process, hf_hub_dataset_name="block:nightly")
    assert hub.repositories == {"ann/nightly": False}
    assert "HF_TOKEN" not in os.environ


def test_a_stage_is_retried_for_errors_that_can_heal(tasks):
    import httpx
    from prefect.states import Failed

    def caused(error, cause):
        error.__cause__ = cause
        return error

    def answered(status):
        return caused(HubError("no"), httpx.HTTPStatusError("no", request=None, response=httpx.Response(status)))

    full = caused(RunDirectoryError("Cannot write"), OSError(28, "No space left on device"))
    away = caused(DatasetError("Cannot load"), ConnectionError("Couldn't reach the Hub"))
    missing = caused(DatasetError("Cannot load"), FileNotFoundError("no such"))
    conflict = RunConflictError("run-1", "The warehouse w", {"model": ("a", "b")})
    for can_heal, healing, others in (
        (tasks.is_away, [away], [missing, ConfigError("wrong")]),
        (tasks.is_outage, [RunAbortedError("Stopped", is_outage=True)], [RunAbortedError("Stopped", is_outage=False)]),
        (tasks.is_unwritten, [full], [RunDirectoryError("is damaged")]),
        (
            tasks.is_hub_away,
            [answered(429), answered(503), caused(HubError("no"), ConnectionRefusedError())],
            [answered(401), answered(403), answered(404), HubError("no such owner")],
        ),
        (tasks.is_unpublished, [WarehouseError("full")], [conflict]),
    ):
        assert [error for error in [*healing, *others] if can_heal(error)] == healing
    condition = tasks.when(tasks.is_unpublished)  # it is given the error that Prefect holds
    states = [Failed(data=WarehouseError("locked")), Failed(data=ValueError("no")), Failed()]
    assert [condition(tasks.publish, None, state) for state in states] == [True, False, False]
