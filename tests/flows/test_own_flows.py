"""Evaluations as subflows of a user's own flow: the code of docs/guides/prefect.md beside its own ``flows``."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client

from nightjar.errors import EnvironmentNotFoundError
from nightjar.evaluation import IncompleteRunError
from nightjar.flows import evaluate
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "prefect.md").read_text().partition("## How it ends")[0]
SOME_FAIL = Faults(rate_500=0.3, seed=3)
NO_RETRIES = {"request_retries": 0, "max_retries": 0}


def run_page(services, base_url):
    """Runs the page's flow as its command does, in the folder of the services, which has its own packages."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 20
    (services.folder / "flows" / "release.py").write_text(code)
    [command] = re.findall(r'python -c "(.*)"', PAGE)
    command = command.replace("http://127.0.0.1:8000/v1", base_url)
    return subprocess.run(
        [sys.executable, "-c", command],
        cwd=services.folder, env=services.environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.mark.slow
def test_the_documented_flow_runs_next_to_a_users_packages(services):
    with ModelServer(ArithmeticSolver()) as server:
        ran = run_page(services, server.url)
    assert ran.stdout.splitlines()[-1] == "True", ran.stderr
    assert "Reward 1.0 ± 0.0, 60 of 60 rollouts scored" in ran.stdout + ran.stderr
    [subflow] = services.call("POST", "/flow_runs/filter", {"flow_runs": {"tags": {"all_": ["release"]}}})
    assert subflow["name"] == "arithmetic | local"
    assert sorted(subflow["tags"]) == ["env:arithmetic", "model:local", "release"]
    assert subflow["parent_task_run_id"] is not None


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.slow
class TestHowItEnds:
    async def test_an_incomplete_run_raises_an_error_with_its_outcome(self):
        @flow
        async def own(base_url: str) -> None:
            await evaluate(env_id="arithmetic", model="m", base_url=base_url, num_examples=10, **NO_RETRIES)

        with ModelServer(ArithmeticSolver(), faults=SOME_FAIL) as server:
            with pytest.raises(IncompleteRunError, match=r"\d+ of 30 rollouts failed with ModelError") as caught:
                await own(server.url)
            scored, port = server.stats().answered, server.port
        outcome = pickle.loads(pickle.dumps(caught.value)).outcome
        assert (outcome.status, outcome.summary.scored, outcome.summary.failed) == ("incomplete", scored, 30 - scored)
        with ModelServer(ArithmeticSolver(), port=port) as server:
            size = {"num_examples": 10, **NO_RETRIES}
            again = await evaluate(
                env_id="arithmetic", model="m", base_url=server.url, resume=str(outcome.path), **size
            )
            assert server.stats().answered == 30 - scored
        assert (again.run_id, again.summary.scored, again.is_complete) == (outcome.run_id, 30, True)

    async def test_a_run_that_cannot_begin_raises_the_reason(self):
        with pytest.raises(EnvironmentNotFoundError, match="made-up"):
            await evaluate(env_id="made-up", model="m")

    async def test_a_retry_of_a_flow_with_a_persisted_result_repeats_nothing(self):
        ends = []
        kept = evaluate.with_options(persist_result=True, flow_run_name="before 2.1")

        @flow(retries=1, retry_delay_seconds=0)
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
        async with get_client() as client:
            subflow = await client.read_flow_run(flow_run_id)
        assert subflow.name == "before 2.1"
        assert sorted(subflow.tags) == ["env:arithmetic", "model:m", "nightly"]
