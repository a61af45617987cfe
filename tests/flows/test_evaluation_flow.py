"""The flow ``evaluate`` on a real Prefect server, against a real HTTP server."""

import asyncio
import json
from pathlib import Path

import pytest
from in_process import artifact, new_flow_run, run_as, task_runs
from waiting import until

from nightjar.flows.evaluation import evaluate
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer, Recording
from nightjar.warehouse import Warehouse
from nightjar.warehouse.backend import open_store
from nightjar.warehouse.pricing import ALWAYS, set_price
from nightjar.warehouse.storage.records import Price

pytestmark = pytest.mark.usefixtures("prefect_server")
GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"


def results(folder):
    [path] = folder.glob("outputs/evals/*/*/results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.skipif(not GSM8K.is_dir(), reason="the recorded GSM8K answers are not beside the checkout")
async def test_gsm8k_gets_the_published_score(own_folder):
    path, right = GSM8K / "recorded-6b-verification.jsonl", 515
    published = [json.loads(line)["is_correct"] for line in path.read_text().splitlines()]
    with ModelServer(Recording.load(path)) as server:
        size = {"num_examples": -1, "rollouts_per_example": 1, "max_concurrent": 64}
        dataset = {"dataset": str(GSM8K / "test.jsonl")}
        await evaluate(env_id="gsm8k", model="recorded", base_url=server.url, env_args=dataset, **size)
    assert [row["reward"] == 1.0 for row in results(own_folder)] == published
    assert sum(published) == right
    answer = Warehouse("outputs/warehouse").query("SELECT avg_reward FROM runs")
    assert answer.rows == [(right / 1319,)]


async def test_task_names_are_readable_and_few(own_folder):
    with ModelServer(ArithmeticSolver()) as server:
        flow_run = await new_flow_run()
        await run_as(flow_run, base_url=server.url, num_examples=100)
    count = 3 + 2 * 15  # 100 groups in blocks of 7
    names = [each.name for each in await task_runs(flow_run.id, count)]
    assert len(names) == count
    shards = {"generate arithmetic, groups 1 to 7", "score arithmetic, groups 99 to 100"}
    assert {*names} >= {"load_env arithmetic", *shards, "aggregate arithmetic", "publish arithmetic"}


async def test_the_ui_shows_progress_and_the_results_on_one_page(own_folder):
    set_price(open_store("outputs/warehouse"), Price("shown", ALWAYS, 10_000.0, 10_000.0))
    with ModelServer(ArithmeticSolver()) as server:
        await evaluate(env_id="arithmetic", model="shown", base_url=server.url, num_examples=4)
    assert (await artifact("progress-arithmetic-shown")).data == 100.0
    title, *lines = (await artifact("results-arithmetic-shown")).data.splitlines()
    assert title == "# Reward 1.0000 (standard error 0.0000)"
    expected = ("scored | 12 of 12 rollouts (100.0%)", "tokens | 168 in, 132 out", "cost | 3, failed attempts included",
                "correct_answer | 1", "2 | 1.000 | 1.000")  # fmt: skip
    assert {*lines} >= {f"| {line} |" for line in expected}


async def test_retry_of_a_failed_run_repeats_only_the_failed_rollouts(own_folder):
    parameters = {"num_examples": 30, "rollouts_per_example": 2, "request_retries": 0}
    with ModelServer(ArithmeticSolver(), faults=Faults(rate_500=0.3, seed=3)) as server:
        parameters["base_url"] = server.url
        flow_run = await new_flow_run()
        state = await run_as(flow_run, **parameters)
        assert state.is_failed()
        failed = [row for row in results(own_folder) if row["error"]]
        assert f"{len(failed)} of 60 rollouts" in state.message
        assert all(row["reward"] is None for row in failed)
        assert server.stats().answered == 60 - len(failed)
    with ModelServer(ArithmeticSolver(), port=server.port) as server:
        state = await run_as(flow_run, **parameters)
        assert state.is_completed()
        assert server.stats().answered == len(failed)
    rows = results(own_folder)  # of one run directory: the retry found its own
    assert [row["reward"] for row in rows] == [1.0] * 60
    published = Warehouse("outputs/warehouse").query("SELECT status, scored FROM runs")
    assert published.rows == [("completed", 60)]


async def test_a_refusing_endpoint_stops_the_run_with_the_providers_message(own_folder):
    with ModelServer(ArithmeticSolver(), only_model="right") as server:
        asked = {"model": "wrong", "base_url": server.url, "num_examples": 200}
        state = await evaluate(env_id="arithmetic", **asked, return_state=True)
        assert state.is_failed()
        assert "The model 'wrong' does not exist" in state.message
        assert server.stats().received < 60
    assert Warehouse("outputs/warehouse").query("SELECT status FROM runs").rows == [("failed",)]


async def test_nightjars_log_is_in_the_log_of_the_run(own_folder, services):
    with ModelServer(ArithmeticSolver()) as server:
        flow_run = await new_flow_run()
        await run_as(flow_run, base_url=server.url, num_examples=2)
    await asyncio.to_thread(until, lambda: "6 of 6 rollouts scored" in str(services.log_of(str(flow_run.id))))
    assert "Completed()" not in str(services.log_of(str(flow_run.id)))  # of each task, as its state shows
