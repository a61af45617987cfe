"""An environment that a worker has never seen goes with the run; which code it was stands in the warehouse."""

import json
import sys

import pytest

from nightjar.model_server import FixedAnswer, ModelServer
from nightjar.warehouse import connect

pytestmark = pytest.mark.long

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


def hand_over(services, folder, *arguments):
    """Runs ``eval run --hosted`` in a folder that is not the worker's, and returns what it prints."""
    ended = services.run("eval", "run", *arguments, "--hosted", "--json", folder=folder)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_environment_and_its_changed_rubric_are_sent_with_the_run(services, own_folder):
    environments = own_folder / "environments"
    environments.mkdir()
    (environments / "far_capitals.py").write_text(LOADS)
    runs = []
    with ModelServer(FixedAnswer("Paris")) as server:
        asked = ("far-capitals", "-m", "sent", "-b", server.url, "-n", "-1", "-r", "2", "-a", '{"city": "Paris"}')
        for rubric in (RIGHT, STRICT):
            (environments / "judge.py").write_text(rubric)
            runs.append(hand_over(services, own_folder, *asked))
        assert [services.end_of(run["flow_run_id"]) for run in runs] == ["COMPLETED"] * 2
    first, other = runs
    assert first["env_source"] != other["env_source"]
    assert not (own_folder / "outputs").exists()
    with connect(str(services.folder / "outputs/warehouse")) as warehouse:
        found = warehouse.sql(
            "SELECT avg_reward, 'sha256:' || env_hash FROM history WHERE env_id = 'far-capitals' ORDER BY 1 DESC"
        ).fetchall()
    assert found == [(1.0, first["env_source"]), (0.0, other["env_source"])]
    parameters = services.flow_run(first["flow_run_id"])["parameters"]
    assert set(parameters) == {
        "env_id", "env_source", "model", "base_url", "api_key_var", "num_examples", "rollouts_per_example", "env_args",
        "timeout_minutes",
    }  # fmt: skip
    assert parameters["api_key_var"] == "VLLM_API_KEY"  # so that no key of the deployment is sent to another host


def test_benchmarks_in_a_file_and_on_a_server_can_be_hosted(services, own_folder):
    (own_folder / "my_benchmark.py").write_text(BENCHMARKS)
    here = f"{sys.executable} -m nightjar serve {own_folder / 'my_benchmark.py'}:whole --host 127.0.0.1"
    with ModelServer(FixedAnswer("4"), keep_requests=20) as server:
        asked = ("-m", "sent", "-b", server.url, "-n", "2", "-r", "1", "--middleware", MIDDLEWARE)
        benchmarks = ("my_benchmark.py:half", f"gym://cmd:: a,b; exec {here} --port {{port}}")
        runs = [hand_over(services, own_folder, each, *asked) for each in benchmarks]
        assert [services.end_of(run["flow_run_id"]) for run in runs] == ["COMPLETED"] * 2
        assert {request.body["messages"][0]["content"] for request in server.requests} == {"Be brief."}
    with connect(str(services.folder / "outputs/warehouse")) as warehouse:
        found = dict(warehouse.sql("SELECT run_id, avg_reward FROM runs").fetchall())
    assert [found[run["run_id"]] for run in runs] == [0.5, 1.0]


def test_an_environment_that_did_not_arrive_fails_the_run(services, own_folder):
    flow_run_id = hand_over(services, own_folder, "arithmetic", "--env-source", NOBODYS)["flow_run_id"]
    assert services.end_of(flow_run_id) == "FAILED"
    said = services.flow_run(flow_run_id)["state"]["message"]
    assert said.startswith(f"Environment {NOBODYS} is not in the result storage of this worker")
