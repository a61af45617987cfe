"""``Run``: shards take turns, finished rollouts are not repeated, and the end of a run is recorded."""

import asyncio

import pytest

from nightjar.clients import ClientConfig, resolve_client
from nightjar.engine import Engine, EngineOptions, RetryPolicy, Run, open_runs
from nightjar.engine.runs import OpenRun, RunDirectory, RunMetadata
from nightjar.engine.runs.identity import fingerprint
from nightjar.environments import EnvironmentRollouts, SingleTurnEnv
from nightjar.environments.rollouts import plan_groups
from nightjar.environments.rubrics import Rubric
from nightjar.errors import RunAbortedError, RunCancelledError, RunTimedOutError
from nightjar.model_server import Faults, FixedAnswer, ModelServer


@pytest.fixture
def open_run(tmp_path):
    def make(url, examples=3, *, is_interleaved=True, tolerated_failures=0.0, time_limit_seconds=None, env_hash=None):
        env = SingleTurnEnv(
            dataset=[{"question": f"{number}: 2+2?", "answer": "4"} for number in range(examples)],
            rubric=Rubric(funcs=[lambda answer: float(answer == "4")]), env_id="sums",
        )  # fmt: skip
        hashes = {number: f"hash{number}" for number in range(examples)}
        metadata = RunMetadata(
            run_id="r1", env_id="sums", env_args={}, env_version=None, model="m", base_url=url, num_examples=examples,
            rollouts_per_example=1, rollouts=examples, sampling_args={}, pass_threshold=0.5,
            dataset_fingerprint=fingerprint(hashes.values()), version_info={"env_hash": env_hash},
        )  # fmt: skip
        opened = OpenRun(
            RunDirectory(tmp_path / "r1"), metadata, config={"env_id": "sums"}, identity={"env_id": "sums"},
            hashes=hashes, tolerated_failures=tolerated_failures,
        )  # fmt: skip
        client = resolve_client(ClientConfig(api_base_url=url, max_retries=0))
        options = EngineOptions(
            is_interleaved=is_interleaved, retry=RetryPolicy(1, 0.0), has_succeeded=opened.journal.has_generated
        )
        rollouts = EnvironmentRollouts(env, client, "m", {})
        engine = Engine(rollouts=rollouts, rubric=env.rubric, recorder=opened.journal, options=options)
        return Run(
            opened, engine, plan_groups(env, 1, is_independent=False), list(hashes), max_shards=examples,
            is_interleaved=is_interleaved, time_limit_seconds=time_limit_seconds, closing=[client.close],
        )  # fmt: skip

    return make


async def run_stages(run):
    async with run.stages() as stages:
        async for shard in run.in_turn():
            stages.create_task(run.generate(shard))
            if run.is_interleaved:
                stages.create_task(run.score(shard))
        if not run.is_interleaved:
            async for shard in run.all_generated():
                stages.create_task(run.score(shard))
    return run.aggregate()


@pytest.fixture
def server():
    with ModelServer(FixedAnswer("4")) as running:
        yield running


@pytest.mark.parametrize("is_interleaved", [True, False])
async def test_every_shard_is_generated_and_scored(open_run, server, is_interleaved):
    async with open_run(server.base_url, is_interleaved=is_interleaved) as run:
        assert open_runs() == (run,)
        metadata = await run_stages(run)
        run.stop(RunCancelledError("too late"))
        assert run.error is None
    assert open_runs() == ()
    assert (metadata.status, metadata.summary.scored, metadata.summary.avg_reward) == ("completed", 3, 1.0)
    assert run.directory.read_metadata()["status"] == "completed"


async def test_a_shard_has_its_turn_when_all_rollouts_of_the_one_before_have_started(open_run, server):
    async with open_run(server.base_url, 2) as run:
        await run.turn(run.shards[0])
        second = asyncio.ensure_future(run.turn(run.shards[1]))
        await asyncio.sleep(0.05)
        assert not second.done()
        await run.generate(run.shards[0])
        await asyncio.wait_for(second, 60)


async def test_a_second_session_sends_no_request_and_keeps_the_start_and_the_time(open_run, server):
    async with open_run(server.base_url) as run:
        first = await run_stages(run)
    async with open_run(server.base_url) as run:
        assert [shard.remaining for shard in run.shards] == [(), (), ()]
        assert (run.opened.is_resumed, run.progress.already_done) == (True, 3)
        second = await run_stages(run)
    assert (second.status, server.stats().answered) == ("completed", 3)
    written = run.directory.read_metadata()
    assert written["started_at"] == first.started_at.isoformat(timespec="milliseconds")
    assert written["time_ms"] == second.time_ms >= first.time_ms
    assert written["date"] == written["started_at"][:10]


async def test_changed_code_is_warned_of(open_run, server, caplog):
    for env_hash in ("a", "a", "b"):
        async with open_run(server.base_url, env_hash=env_hash):
            pass
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(fact in said for fact in ("'sums'", "r1", "0 rollouts"))


async def test_generation_is_resumed_from_the_journal_after_an_outage(open_run, server):
    async with open_run(server.base_url, 1) as run:
        [shard] = run.shards
        scoring = asyncio.ensure_future(run.score(shard))
        with pytest.raises(RunAbortedError):
            await interrupted(run, shard)
        assert await run.generate(shard) == 1
        assert await scoring == 1
        assert run.aggregate().status == "completed"


async def test_a_retried_shard_generates_the_rollouts_that_earlier_shards_lost_in_an_outage(open_run):
    with ModelServer(FixedAnswer("4"), faults=Faults(rate_500=1.0)) as broken:
        run = open_run(broken.base_url, 3)
        port = broken.port
        first, second, _ = run.shards
        await asyncio.gather(run.generate(first), run.score(first))
        scoring = asyncio.ensure_future(run.score(second))
        with pytest.raises(RunAbortedError):
            await interrupted(run, second)
    with ModelServer(FixedAnswer("4"), port=port) as server:
        async with run:
            await run.generate(second)
            await scoring
            assert server.stats().answered == 2
            assert (run.progress.scored, run.progress.failed) == (2, 0)


async def interrupted(run, shard):
    """Tries to generate a shard while the engine says that nobody answers."""
    real = run._engine.generate

    async def away(groups, ready):
        run._engine.generate = real
        list(groups)
        raise RunAbortedError("nobody answers", is_outage=True)

    run._engine.generate = away
    await run.generate(shard)


@pytest.mark.parametrize(
    ("error", "status"), [(RunAbortedError("refused"), "failed"), (asyncio.CancelledError(), "cancelled")]
)
async def test_the_error_of_a_stage_stops_the_run(open_run, server, error, status):
    async with open_run(server.base_url) as run:
        async with run.stages() as stages:
            stages.create_task(asyncio.sleep(60))
            raise error
        metadata = run.aggregate()
    assert (metadata.status, run.error) == (status, error)


@pytest.mark.parametrize("is_interleaved", [True, False])
async def test_a_stopped_run_ends_soon_and_keeps_the_first_reason(open_run, is_interleaved):
    with ModelServer(FixedAnswer("4"), faults=Faults(latency_ms=600_000)) as server:
        async with open_run(server.base_url, is_interleaved=is_interleaved) as run:
            ending = asyncio.ensure_future(run_stages(run))
            while server.stats().in_flight < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            run.stop(RunCancelledError("enough"))
            run.stop(RunTimedOutError("the first reason stands"))
            metadata = await asyncio.wait_for(ending, 60)
        assert (metadata.status, metadata.summary.scored, str(run.error)) == ("cancelled", 0, "enough")


@pytest.mark.slow
async def test_a_stage_that_does_not_end_by_itself_is_cancelled(open_run, server):
    async with open_run(server.base_url) as run:
        async with run.stages() as stages:
            stages.create_task(asyncio.sleep(60))
            run.stop(RunCancelledError("enough"))
        assert run.aggregate().status == "cancelled"
        assert asyncio.current_task().cancelling() == 0


async def test_a_run_stops_at_its_time_limit(open_run):
    with ModelServer(FixedAnswer("4"), faults=Faults(latency_ms=600_000)) as server:
        async with open_run(server.base_url, time_limit_seconds=0.2) as run:
            metadata = await asyncio.wait_for(run_stages(run), 60)
    assert (metadata.status, type(run.error)) == ("timed_out", RunTimedOutError)


@pytest.mark.parametrize(("tolerated", "status"), [(0.0, "incomplete"), (0.34, "completed")])
async def test_a_tolerated_share_of_rollouts_may_be_missing(open_run, server, tolerated, status):
    async with open_run(server.base_url, tolerated_failures=tolerated) as run:
        for shard in run.shards[:2]:
            await asyncio.gather(run.generate(shard), run.score(shard))
        assert run.aggregate().status == status
