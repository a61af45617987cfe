"""An environment that a worker has never seen goes with the run; which code it was stands in the warehouse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_services import NIGHTJAR, Services

from nightjar.model_server import FixedAnswer, ModelServer
from nightjar.warehouse import connect

LOADS = """import nightjar as vf
from judge import graded


def load_environment(city: str = "Paris") -> vf.Environment:
    data = [{"question": f"What is the capital of France? ({number})", "answer": city} for number in range(3)]
    return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[graded]))
"""
BENCHMARKS = """
from nightjar.compat.nemo import benchmark, exact_match, scorer


@benchmark(name="half", dataset=[{"n": 2, "sum": "4"}, {"n": 3, "sum": "6"}], prompt="{n} + {n}?", target_field="sum")
@scorer
def half(sample):
    return exact_match(sample)


@benchmark(name="whole", dataset=[{"n": 2, "sum": "4"}] * 2, prompt="{n} + {n}?", target_field="sum")
@scorer
def whole(sample):
    return exact_match(sample)
"""
MIDDLEWARE = '[{"use": "system", "text": "Be brief.", "mode": "replace"}]'
RIGHT = "def graded(completion, answer):\n    return float(completion[-1]['content'] == answer)\n"
NOBODYS = f"sha256:{'0' * 64}"
STRICT = "def graded(completion, answer):\n    return 0.0\n"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(FixedAnswer("Paris")) as server:
        yield server


def hand_over(services: Services, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Types ``eval run --hosted`` in a folder that is not the worker's."""
    command = [*NIGHTJAR, "eval", "run", *arguments, "--hosted", "--json"]
    return subprocess.run(
        command, cwd=folder, env=services.environment, capture_output=True, text=True, timeout=120, check=False
    )


def submitted(services: Services, folder: Path, *arguments: str) -> dict[str, Any]:
    ended = hand_over(services, folder, *arguments)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert services.wait_for(found["flow_run_id"], "COMPLETED", "FAILED", "CRASHED") == "COMPLETED"
    return found


@pytest.mark.long
def test_an_environment_from_another_folder_and_the_rubric_that_changed(
    services: Services, server: ModelServer, own_folder: Path
) -> None:
    environments = own_folder / "environments"
    environments.mkdir()
    (environments / "far_capitals.py").write_text(LOADS)
    asked = ("far-capitals", "-m", "sent", "-b", server.url, "-n", "-1", "-r", "2", "-a", '{"city": "Paris"}')
    (environments / "judge.py").write_text(RIGHT)
    first = submitted(services, own_folder, *asked)
    same = submitted(services, own_folder, *asked)
    (environments / "judge.py").write_text(STRICT)
    other = submitted(services, own_folder, *asked)
    assert first["env_source"] == same["env_source"] != other["env_source"]
    assert not (own_folder / "outputs").exists()
    with connect(str(services.folder / "outputs/warehouse")) as warehouse:
        found = warehouse.sql(
            "SELECT avg_reward, 'sha256:' || env_hash FROM history WHERE env_id = 'far-capitals' ORDER BY started_at"
        ).fetchall()
    assert found == [(1.0, first["env_source"]), (1.0, first["env_source"]), (0.0, other["env_source"])]
    parameters = services.call("GET", f"/flow_runs/{first['flow_run_id']}")["parameters"]
    assert set(parameters) == {
        "env_id", "env_source", "model", "base_url", "num_examples", "rollouts_per_example", "env_args",
        "timeout_minutes",
    }  # fmt: skip


@pytest.mark.long
def test_a_benchmark_in_a_file_and_one_that_a_server_holds(services: Services, own_folder: Path) -> None:
    (own_folder / "my_benchmark.py").write_text(BENCHMARKS)
    here = f"{sys.executable} -m nightjar serve {own_folder / 'my_benchmark.py'}:whole --host 127.0.0.1"
    with ModelServer(FixedAnswer("4"), keep_requests=20) as server:
        asked = ("-m", "sent", "-b", server.url, "-n", "2", "-r", "1", "--middleware", MIDDLEWARE)
        runs = [
            submitted(services, own_folder, env, *asked)["run_id"]
            for env in ("my_benchmark.py:half", f"gym://cmd:: a,b; exec {here} --port {{port}}")
        ]
        assert {request.body["messages"][0]["content"] for request in server.requests} == {"Be brief."}
    with connect(str(services.folder / "outputs/warehouse")) as warehouse:
        found = dict(warehouse.sql("SELECT run_id, avg_reward FROM runs").fetchall())
    assert [found[run] for run in runs] == [0.5, 1.0]


def test_a_deployment_that_is_not_there(services: Services, own_folder: Path) -> None:
    ended = hand_over(services, own_folder, "arithmetic", "--deployment", "evaluate/no-such")
    [line] = ended.stderr.splitlines()
    assert (ended.returncode, "There is no deployment 'evaluate/no-such'" in line) == (1, True)


def test_an_environment_that_did_not_arrive(services: Services, own_folder: Path) -> None:
    ended = hand_over(services, own_folder, "arithmetic", "--env-source", NOBODYS)
    flow_run_id = json.loads(ended.stdout)["flow_run_id"]
    assert services.wait_for(flow_run_id, "COMPLETED", "FAILED", "CRASHED") == "FAILED"
    said = services.call("GET", f"/flow_runs/{flow_run_id}")["state"]["message"]
    assert said.startswith(f"Environment {NOBODYS} is not in the result storage of this worker")
