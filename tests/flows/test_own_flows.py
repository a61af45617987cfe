"""Evaluations and tasks in a user's own flows: the code of docs/guides/prefect.md, and how runs end there."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.errors import EnvironmentNotFoundError
from nightjar.evaluation import IncompleteRunError
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "prefect.md").read_text()


def code_of(section):
    """Returns the only Python block of a section, which is short."""
    [code] = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 20
    return code


def test_the_documented_flow_runs_next_to_a_users_packages(services):
    """It runs as its command does, in the folder of the services, which has packages ``flows`` and so on of its own."""
    page = PAGE.partition("## How it ends")[0]
    (services.folder / "flows" / "release.py").write_text(code_of(page.replace("\n## ", "\n")))
    [command] = re.findall(r'python -c "(.*)"', page)
    with ModelServer(ArithmeticSolver()) as server:
        ran = subprocess.run(
            [sys.executable, "-c", command.replace("http://127.0.0.1:8000/v1", server.url)],
            cwd=services.folder, env=services.environment, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
    assert ran.stdout.splitlines()[-1] == "True", ran.stderr
    assert "Reward 1.0 ± 0.0, 60 of 60 rollouts scored" in ran.stdout + ran.stderr
    [subflow] = services.call("POST", "/flow_runs/filter", {"flow_runs": {"tags": {"all_": ["release"]}}})
    assert subflow["name"] == "arithmetic | local"
    assert sorted(subflow["tags"]) == ["env:arithmetic", "model:local", "release"]
    assert subflow["parent_task_run_id"] is not None


def test_the_documented_tasks_run_in_a_users_flow(prefect_server):
    names = {"__name__": "example"}
    code = code_of(PAGE.partition("## The tasks in a flow of your own")[2])
    exec(compile(code, "docs/guides/prefect.md", "exec", dont_inherit=True), names)
    with ModelServer(ArithmeticSolver()) as server:
        assert names["nightly"]("m", server.url) == 1.0
        assert server.stats().answered == 60
    assert Warehouse("outputs/warehouse").query("SELECT scored FROM runs").rows == [(60,)]


async def test_an_incomplete_run_raises_an_error_with_its_outcome_which_a_resume_completes(prefect, in_process):
    asked = {"env_id": "arithmetic", "model": "m", "num_examples": 10, "request_retries": 0, "max_retries": 0}

    @prefect.flow
    async def own(base_url: str) -> None:
        await in_process.evaluate(base_url=base_url, **asked)

    with ModelServer(ArithmeticSolver(), faults=Faults(rate_500=0.3, seed=3)) as server:
        with pytest.raises(IncompleteRunError, match=r"\d+ of 30 rollouts failed with ModelError") as caught:
            await own(server.url)
        scored = server.stats().answered
    outcome = pickle.loads(pickle.dumps(caught.value)).outcome
    assert (outcome.status, outcome.summary.scored, outcome.summary.failed) == ("incomplete", scored, 30 - scored)
    with ModelServer(ArithmeticSolver(), port=server.port) as server:
        again = await in_process.evaluate(base_url=server.url, resume=str(outcome.path), **asked)
        assert server.stats().answered == 30 - scored
    assert (again.run_id, again.summary.scored, again.is_complete) == (outcome.run_id, 30, True)


async def test_a_run_that_cannot_begin_raises_the_reason(in_process):
    with pytest.raises(EnvironmentNotFoundError, match="made-up"):
        await in_process.evaluate(env_id="made-up", model="m")


async def test_a_retry_of_a_flow_with_a_persisted_result_repeats_nothing(prefect, in_process):
    ends = []
    kept = in_process.evaluate.with_options(persist_result=True, flow_run_name="before 2.1")

    @prefect.flow(retries=1, retry_delay_seconds=0)
    async def own(base_url: str) -> str:
        outcome = await kept(env_id="arithmetic", model="m", base_url=base_url, num_examples=5, tags=["nightly"])
        ends.append((outcome.run_id, outcome.summary.scored))
        if len(ends) == 1:
            raise RuntimeError("something else failed")
        return str(outcome.metadata.flow_run_id)

    with ModelServer(ArithmeticSolver()) as server:
        flow_run_id = await own(server.url)
        assert server.stats().answered == 15
    assert ends == [ends[0], ends[0]]
    assert ends[0][1] == 15
    subflow = await in_process.read(flow_run_id)
    assert subflow.name == "before 2.1"
    assert sorted(subflow.tags) == ["env:arithmetic", "model:m", "nightly"]
