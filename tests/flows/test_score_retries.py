"""The stages of a run that Prefect tries again, on a real server: what is done is not done twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter

import pytest
from waiting import until

from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.long]
JUDGED = '''
from pathlib import Path
from threading import Lock

import nightjar as vf

counting = Lock()  # two shards are scored at the same time

def judged(completion, **kwargs) -> float:
    """Asks a service whether the answer is good; counts its calls."""
    with counting:
        with Path("asked.txt").open("a") as log:
            log.write("asked\\n")
        calls = len(Path("asked.txt").read_text().splitlines())
        if 10 < calls and not Path("judge-is-back").exists():
            with Path("refused.txt").open("a") as log:
                log.write("refused\\n")
            raise ConnectionRefusedError("the judge is away")
    return 1.0

def load_environment():
    dataset = [{"question": f"What is {number}+1?", "answer": str(number + 1)} for number in range(20)]
    return vf.SingleTurnEnv(dataset=dataset, rubric=vf.Rubric(funcs=[judged]))
'''


@pytest.fixture
def tasks():
    from nightjar.tasks import evaluation

    return evaluation


async def task_states(in_process, flow_run, name):
    found = await in_process.task_runs(flow_run.id, 3 + 2 * 2)
    return [(each.state.name, each.run_count) for each in found if each.name.startswith(name)]


def results(folder):
    [path] = folder.glob("**/evals/*/*/results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


_numbers = itertools.count()


@pytest.fixture
def judged(tasks, own_folder, monkeypatch):
    name = f"judged_{next(_numbers)}"  # a process imports a module once
    (own_folder / "environments").mkdir()
    (own_folder / f"environments/{name}.py").write_text(JUDGED)
    monkeypatch.setattr(tasks.score, "retry_delay_seconds", [1.0])
    return {"env_id": name, "model": "m", "num_examples": 20, "rollouts_per_example": 1, "max_shards": 2}


async def test_a_judge_that_stays_away_fails_its_rollouts_but_not_the_run(
    in_process, tasks, judged, own_folder, monkeypatch
):
    monkeypatch.setattr(tasks.score, "retries", 1)
    flow_run = await in_process.new_flow_run()
    with ModelServer(ArithmeticSolver()) as server:
        state = await in_process.run_as(flow_run, **judged, base_url=server.url)
        assert server.stats().answered == 20
    assert "10 of 20 rollouts" in state.message
    rows = results(own_folder)
    assert (len(rows), sum(row["reward"] is None for row in rows)) == (20, 10)
    [path] = own_folder.glob("**/evals/*/*/metadata.json")
    told = json.loads(path.read_text())
    assert (told["status"], told["scored"], told["failed"], told["error"]) == ("incomplete", 10, 10, None)
    assert ("Failed", 2) in await task_states(in_process, flow_run, "score")
    assert await task_states(in_process, flow_run, "publish") == [("Completed", 1)]


@pytest.mark.parametrize("is_interleaved", [True, False])
async def test_a_retry_of_score_scores_only_what_is_missing(in_process, judged, own_folder, is_interleaved):
    async def judge_comes_back():
        await asyncio.to_thread(until, lambda: lines(own_folder / "asked.txt") >= 20)
        (own_folder / "judge-is-back").touch()

    flow_run = await in_process.new_flow_run()
    with ModelServer(ArithmeticSolver()) as server:
        back = asyncio.create_task(judge_comes_back())
        asked = {**judged, "interleave_scoring": is_interleaved}
        state = await in_process.run_as(flow_run, **asked, base_url=server.url)
        assert state.is_completed(), state.message
        await back
        assert server.stats().answered == 20, "the model is asked once for each rollout"
    assert lines(own_folder / "refused.txt") > 0
    assert lines(own_folder / "asked.txt") == 20 + lines(own_folder / "refused.txt")
    assert [row["reward"] for row in results(own_folder)] == [1.0] * 20
    scored = Counter(await task_states(in_process, flow_run, "score"))
    assert set(scored) <= {("Completed", 1), ("Completed", 2)}
    assert scored["Completed", 2] >= 1
    assert set(await task_states(in_process, flow_run, "generate")) == {("Completed", 1)}


def test_aggregate_is_retried_when_the_disk_can_be_written(prefect, tasks):
    @prefect.flow
    def mine(asked: RunConfig) -> str:
        with tasks.load_env.submit(asked).result() as run:
            shards = prefect.unmapped(run), run.shards
            prefect.futures.wait([*tasks.generate.map(*shards), *tasks.score.map(*shards)])
            written = run.directory.path / "metadata.json"
            written.unlink()
            written.mkdir()  # which no file can replace
            adding_up = tasks.aggregate.submit(run)
            time.sleep(0.7)
            written.rmdir()
            status = adding_up.result().status
            assert json.loads(written.read_text())["status"] == status
        return status

    with ModelServer(ArithmeticSolver()) as server:
        asked = {"env_id": "arithmetic", "model": "m", "num_examples": 4, "base_url": server.url}
        assert mine(RunConfig(**asked)) == "completed"
        assert server.stats().answered == 12
