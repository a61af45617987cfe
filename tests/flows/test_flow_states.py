"""What a flow run looks like in Prefect: its name and tags, its tasks on a retry, why it failed, what it ends with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow
from prefect.states import Failed

from flows.evaluation import evaluate
from flows.naming import is_drawn
from nightjar.errors import ConfigError, DatasetError, RunAbortedError
from nightjar.evaluation import Outcome
from nightjar.testing import ArithmeticSolver, Faults, ModelServer
from tasks import evaluation as tasks

pytestmark = pytest.mark.usefixtures("prefect_server")
SOME_FAIL = Faults(rate_500=0.3, seed=3)


async def new_flow_run(**fields: Any) -> FlowRun:
    async with get_client() as client:
        return await client.create_flow_run(evaluate, **fields)


async def run_as(flow_run: FlowRun, **parameters: Any) -> Any:
    """Runs the flow as a given flow run: what a worker does, for the first time or on Retry."""
    parameters = {"env_id": "arithmetic", "model": "m", **parameters}
    async with get_client() as client:
        flow_run = await client.read_flow_run(flow_run.id)
    return await run_flow(evaluate, flow_run=flow_run, parameters=parameters, return_type="state")  # type: ignore[misc]


async def task_states(flow_run: FlowRun, wanted: int) -> dict[str, list[str]]:
    """Returns the names of a flow run's tasks by state, once the server knows so many of them to have ended."""
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
    states: dict[str, list[str]] = {}
    async with get_client() as client:
        for _ in range(200):
            states = {}
            for each in await client.read_task_runs(flow_run_filter=chosen, limit=200):
                states.setdefault(str(each.state and each.state.name), []).append(each.name)
            if sum(map(len, states.values())) >= wanted and set(states) <= {"Completed", "Cached", "Failed"}:
                break
            await asyncio.sleep(0.1)
    return states


async def artifact(key: str) -> Any:
    """Returns the newest artifact of a key."""
    async with get_client() as client:
        found = await client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    return max(found, key=lambda each: each.created).data


async def test_a_shard_that_is_done_shows_as_cached_on_a_retry() -> None:
    flow_run = await new_flow_run()
    with ModelServer(ArithmeticSolver(), faults=Faults(rate_500=0.04, seed=3)) as server:
        size = {"base_url": server.url, "num_examples": 32, "rollouts_per_example": 1, "request_retries": 0}
        first = await run_as(flow_run, **size)
        failed, port = 32 - server.stats().answered, server.port
    assert 0 < failed < 6
    assert first.is_failed()
    with ModelServer(ArithmeticSolver(), port=port) as server:
        assert (await run_as(flow_run, **size)).is_completed()
        assert server.stats().answered == failed
    states = await task_states(flow_run, 2 * (3 + 32))
    cached = [name.split()[0] for name in states["Cached"]]
    assert cached.count("generate") == cached.count("score") >= 16 - failed


async def test_why_a_run_failed_is_in_its_message_and_in_an_artifact_until_a_retry_succeeds() -> None:
    flow_run = await new_flow_run()
    with ModelServer(ArithmeticSolver(), faults=SOME_FAIL) as server:
        where = {"base_url": server.url, "num_examples": 10, "model": "why", "request_retries": 0}
        state = await run_as(flow_run, **where)
        port = server.port
    failed = (await state.aresult(raise_on_failure=False)).summary.failed
    assert (
        f"{failed} of 30 rollouts failed with ModelError -> InternalServerError (model API). One of them: "
        in state.message
    )
    assert "What to do (model API): " in state.message
    assert "Retry, or --resume" in state.message
    table = await artifact("errors-arithmetic-why")
    assert f"| {failed} | model API | ModelError -> InternalServerError | " in table
    with ModelServer(ArithmeticSolver(), port=port):
        assert (await run_as(flow_run, **where)).is_completed()
    assert "was done again, and succeeded" in await artifact("errors-arithmetic-why")


async def test_it_ends_with_the_outcome() -> None:
    with ModelServer(ArithmeticSolver()) as server:
        state = await run_as(await new_flow_run(), base_url=server.url, num_examples=2)
    outcome = await state.aresult()
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.summary.scored, outcome.is_complete) == ("completed", 6, True)
    assert f"Run {outcome.run_id}: 6 of 6 rollouts scored" in state.message


async def test_generation_goes_on_when_the_endpoint_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks._generate, "retry_delay_seconds", [2, 2, 2])
    size = {"num_examples": 400, "rollouts_per_example": 1, "max_concurrent": 4, "max_shards": 8}
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=20)) as server:
        port = server.port
        running = asyncio.ensure_future(run_as(await new_flow_run(), base_url=server.url, model="away", **size))
        while server.stats().answered < 40:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert not running.done()
        answered = server.stats().answered
    await asyncio.sleep(1.0)  # nobody answers: generation is stopped, and Prefect waits
    with ModelServer(ArithmeticSolver(), port=port) as server:
        state = await running
        assert state.is_completed(), state.message
        assert server.stats().answered <= 400 - answered + 8


@pytest.mark.parametrize(
    ("typed", "shown"), [({"name": "before the release"}, "before the release"), ({}, "arithmetic | m")]
)
async def test_a_name_that_somebody_typed_is_kept(typed: dict[str, str], shown: str) -> None:
    flow_run = await new_flow_run(**typed)
    with ModelServer(ArithmeticSolver()) as server:
        await run_as(flow_run, base_url=server.url, num_examples=1)
    async with get_client() as client:
        assert (await client.read_flow_run(flow_run.id)).name == shown


async def test_what_prefect_draws_is_told_from_what_is_typed() -> None:
    async with get_client() as client:
        drawn = [(await client.create_flow_run(evaluate)).name for _ in range(20)]
    drawn += ["convivial-leopard", "theta99-drayan-ring", "pi-scheat-q", "Refined-Tiger"]  # by its server, its UIs
    assert all(map(is_drawn, drawn))
    typed = [
        "nightly-arithmetic",
        "arithmetic | m",
        "release",
        "blue-green",
        "gsm8k-100",
        "my own name",
        "beta2-prompts",
        "delta-prompts",
        "Generic-Assistants",
    ]
    assert not any(map(is_drawn, typed))


async def test_tags_say_environment_and_model_beside_the_user_s_own() -> None:
    flow_run = await new_flow_run(tags=["typed"])
    with ModelServer(ArithmeticSolver()) as server:
        await run_as(flow_run, base_url=server.url, num_examples=1, tags=["nightly"])
    async with get_client() as client:
        found = await client.read_flow_run(flow_run.id)
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
        task_runs = await client.read_task_runs(flow_run_filter=chosen)
    assert set(found.tags) == {"typed", "nightly", "env:arithmetic", "model:m"}
    assert all({"env:arithmetic", "model:m"} <= set(each.tags) for each in task_runs)  # a limit can hold them


class TestWhatMayHeal:
    def test_a_hub_that_does_not_answer(self) -> None:
        away, missing = DatasetError("Cannot load"), DatasetError("Cannot load")
        away.__cause__, missing.__cause__ = ConnectionError("Couldn't reach the Hub"), FileNotFoundError("no such")
        assert tasks.is_hub_away(tasks._load_env, None, Failed(data=away))  # type: ignore[arg-type]
        assert not tasks.is_hub_away(tasks._load_env, None, Failed(data=missing))  # type: ignore[arg-type]
        assert not tasks.is_hub_away(tasks._load_env, None, Failed(data=ConfigError("wrong")))  # type: ignore[arg-type]

    @pytest.mark.parametrize("is_outage", [True, False])
    def test_an_endpoint_that_has_answered_before(self, is_outage: bool) -> None:
        stopped = Failed(data=RunAbortedError("Stopped", is_outage=is_outage))
        assert tasks.is_outage(tasks._generate, None, stopped) is is_outage  # type: ignore[arg-type]
