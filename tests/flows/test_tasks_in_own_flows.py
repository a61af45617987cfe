"""The Prefect tasks of an evaluation in other flows: with options, submitted and mapped, async and not."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from nightjar.errors import EnvironmentNotFoundError, HubError, RunCancelledError
from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.long]


def config(server, **fields):
    values = {"env_id": "arithmetic", "model": "m", "num_examples": 8, "rollouts_per_example": 2, "max_shards": 4}
    return RunConfig(**{**values, "base_url": server.url, **fields})


def published():
    return Warehouse("outputs/warehouse").query("SELECT status, scored, avg_reward FROM runs ORDER BY model").rows


@pytest.fixture
def tasks():
    from nightjar import tasks

    return tasks


@pytest.fixture
def submit_all(prefect, tasks):
    """Submits the generation and the scoring of all shards, and returns the futures."""

    def submit_all(run):
        shards = prefect.unmapped(run), run.shards
        return [*tasks.generate.map(*shards), *tasks.score.map(*shards)]

    return submit_all


async def test_an_async_flow_awaits_them(prefect, tasks):
    @prefect.flow
    async def mine(asked: RunConfig) -> Any:
        async with await tasks.load_env(asked) as run:
            for shard in run.shards:
                assert await tasks.generate.with_options(retries=5)(run, shard) == 2
                assert await tasks.score(run=run, shard=shard) == 2
            metadata = await tasks.aggregate(run)
            report = await tasks.publish(run)
        return metadata.summary.avg_reward, report.rollouts

    with ModelServer(ArithmeticSolver()) as server:
        assert await mine(config(server)) == (1.0, 16)
    assert published() == [("completed", 16, 1.0)]


async def test_an_async_flow_submits_and_maps_them_and_may_block_its_own_loop(prefect, tasks, in_process):
    @prefect.flow
    async def mine(asked: RunConfig) -> UUID:
        from prefect.runtime import flow_run

        run = tasks.load_env.submit(asked).result()
        async with run:
            generated = tasks.generate.map(prefect.unmapped(run), run.shards)
            scored = tasks.score.with_options(name="rate").map(prefect.unmapped(run), run.shards)
            prefect.futures.wait([*generated, *scored])
            assert [each.result() for each in (*generated, *scored)] == [2] * 8
            tasks.aggregate.submit(run).wait()
            tasks.publish.submit(run, warehouse="outputs/warehouse").result()
        return UUID(str(flow_run.id))

    with ModelServer(ArithmeticSolver()) as server:
        flow_run_id = await mine(config(server))
    assert published() == [("completed", 16, 1.0)]
    names = sorted(each.name.split()[0] for each in await in_process.task_runs(flow_run_id, 11))
    assert names == ["aggregate", *["generate"] * 4, "load_env", "publish", *["score"] * 4]


def test_a_flow_that_is_not_async_keeps_no_loop_and_one_thread_is_enough(prefect, tasks, submit_all):
    from prefect.task_runners import ThreadPoolTaskRunner

    @prefect.flow(task_runner=ThreadPoolTaskRunner(max_workers=1))
    def mine(asked: RunConfig) -> float | None:
        with tasks.load_env.submit(asked).result() as run:
            prefect.futures.wait(submit_all(run))
            summary = tasks.aggregate.submit(run).result().summary
            tasks.publish.submit(run).result()
        return float(summary.avg_reward)

    with ModelServer(ArithmeticSolver()) as server:
        assert mine(config(server, num_examples=50, max_concurrent=8)) == 1.0
    assert published() == [("completed", 100, 1.0)]


def test_two_evaluations_in_one_flow_are_two_runs_and_a_retry_of_the_flow_finds_both(prefect, tasks, submit_all):
    @prefect.flow(retries=1)
    def mine(first: RunConfig, second: RunConfig, seen: list[str]) -> None:
        for asked in (first, second):
            with tasks.load_env.submit(asked).result() as run:
                seen.append(run.run_id)
                prefect.futures.wait(submit_all(run))
                tasks.aggregate.submit(run).wait()
                tasks.publish.submit(run).result()
        if len(seen) == 2:
            raise RuntimeError("after the last one")

    with ModelServer(ArithmeticSolver()) as server:
        seen = []
        mine.with_options(validate_parameters=False)(config(server), config(server, num_examples=5), seen)
        assert server.stats().answered == 16 + 10
    assert seen[:2] == seen[2:]
    assert len(set(seen)) == len(published()) == 2


def test_a_run_that_is_stopped_cancels_what_was_submitted(prefect, tasks, submit_all):
    @prefect.flow
    def mine(asked: RunConfig) -> list[str]:
        with tasks.load_env.submit(asked).result() as run:
            futures = submit_all(run)
            run.stop(RunCancelledError("enough"))
            prefect.futures.wait(futures)
            assert tasks.aggregate.submit(run).result().status == "cancelled"
        return [str(each.state.name) for each in futures]

    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=500)) as server:
        assert mine(config(server)) == ["Cancelled"] * 8


def test_the_time_limit_of_a_run_holds(prefect, tasks, submit_all):
    @prefect.flow
    def mine(asked: RunConfig) -> str:
        with tasks.load_env.submit(asked).result() as run:
            prefect.futures.wait(submit_all(run))
            return str(tasks.aggregate.submit(run).result().status)

    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=20_000)) as server:
        assert mine(config(server, timeout_minutes=0.02)) == "timed_out"


@pytest.mark.parametrize(("fields", "error", "message"), [
    ({"env_id": "no-such-env"}, EnvironmentNotFoundError, "no-such-env"), ({}, HubError, "nightjar eval push"),
])  # fmt: skip
def test_an_unknown_environment_and_a_refused_push_raise_their_errors(
    prefect, tasks, submit_all, fields, error, message
):
    @prefect.flow
    def mine(asked: RunConfig) -> None:
        with tasks.load_env.submit(asked).result() as run:
            prefect.futures.wait(submit_all(run))
            tasks.aggregate.submit(run).wait()
            tasks.push.submit(run, name="no name at all/x").result()

    with ModelServer(ArithmeticSolver()) as server, pytest.raises(error, match=message):
        mine(config(server, num_examples=4, max_shards=1, **fields))
