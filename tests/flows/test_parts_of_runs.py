"""``--shards``: a run in several flow runs on the worker; one is killed, and Retry makes the run whole."""

import json
import os
import signal

import pytest
from waiting import until

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import connect

pytestmark = pytest.mark.long

NUMBERS = "status, num_examples, rollouts, scored, failed, avg_reward, stderr, pass_at_k, usage, dataset_fingerprint"
ROWS = "SELECT example_id, rollout_index, example_hash, reward, metrics, completion FROM rollouts WHERE run_id = ?"


def run(services, *arguments):
    ended = services.run("eval", "run", "arithmetic", "-m", "parts", *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def ask(services, statement, *values):
    with connect(str(services.folder / "outputs/warehouse")) as warehouse:
        return warehouse.execute(statement.replace("usage", "input_tokens, output_tokens"), values).fetchall()


def test_a_retry_of_a_killed_part_completes_the_run(services):
    with ModelServer(ArithmeticSolver(error_rate=0), faults=Faults(latency_ms=300)) as server:
        asked = ("-b", server.url, "-n", "30", "-r", "2", "--shuffle")
        parts = run(services, *asked, "-c", "2", "--hosted", "--shards", "3")
        run_id = parts[0]["run_id"]
        assert [part["name"] for part in parts] == [f"arithmetic | parts | part {number} of 3" for number in (1, 2, 3)]
        killed = parts[1]["flow_run_id"]
        results = services.folder / f"outputs/evals/arithmetic--parts/{run_id}.part-2-of-3/results.jsonl"
        until(lambda: results.exists() and results.read_bytes().count(b"\n") > 5, told=services.log)
        os.kill(services.process_of(killed), signal.SIGKILL)
        assert services.wait_for(killed, "CRASHED") == "CRASHED"
        for part in (parts[0], parts[2]):
            assert services.end_of(part["flow_run_id"]) == "COMPLETED"
        answered = server.stats().answered
        services.wait_for_worker(killed)
        services.retry(killed)
        assert services.end_of(killed) == "COMPLETED"
        assert answered < server.stats().answered <= 60 + 2
        flow_run = services.flow_run(killed)
        one = run(services, *asked)
    assert f"run:{run_id}" in flow_run["tags"]
    [whole], [joined] = (ask(services, f"SELECT {NUMBERS} FROM runs WHERE run_id = ?", each) for each in (
        one["run_id"], run_id
    ))  # fmt: skip
    assert (joined, joined[0]) == (whole, "completed")
    assert sorted(map(str, ask(services, ROWS, run_id))) == sorted(map(str, ask(services, ROWS, one["run_id"])))
    assert ask(services, "SELECT run_id FROM runs WHERE starts_with(run_id, ?)", run_id) == [(run_id,)]
    assert f"Run {run_id} is joined from its 3 parts: completed" in str(services.log_of(killed))
