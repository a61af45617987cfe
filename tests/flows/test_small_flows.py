"""The deployments that are one call into Nightjar each: rescore, publish-run, prune and upkeep."""

import json
import shutil

import pytest

from nightjar.model_server import ArithmeticSolver, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def run_id(services):
    """The id of a run that is published in a warehouse of these tests' own."""
    with ModelServer(ArithmeticSolver()) as server:
        typed = ("arithmetic", "-m", "small", "-b", server.url, "-n", "3", "--warehouse", "small", "--direct", "--json")
        ran = services.run("eval", "run", *typed)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)["run_id"]


@pytest.fixture
def ended(run_deployed):
    async def ended(deployment, state="COMPLETED", **parameters):
        found = await run_deployed(deployment, **{"warehouse": "small", **parameters})
        assert found["state_type"] == state, found["state"]["message"]
        return found

    return ended


def published(services, columns="run_id"):
    return Warehouse(services.folder / "small").query(f"SELECT {columns} FROM runs ORDER BY started_at").rows


async def test_rescore_creates_a_new_run(services, run_id, ended):
    (services.folder / "strict.py").write_text("def never(completion, answer):\n    return 0.0\n")
    flow_run = await ended("rescore", run=run_id[:8], rubric="strict.py:never")
    assert {"env:arithmetic", "model:small"} <= set(flow_run["tags"])
    assert services.artifact(flow_run["id"], "results-rescored-arithmetic-small").startswith("# Reward 0.0000")
    assert published(services, "rescored_from, avg_reward") == [(None, 1.0), (run_id, 0.0)]


async def test_publish_run_and_prune(services, run_id, ended):
    others = len(published(services)) - 1
    shown = await ended("prune", status="completed")
    assert shown["state"]["message"] == f"{others + 1} runs would be removed; dry_run is on"
    assert run_id in services.artifact(shown["id"], "prune")
    assert len(published(services)) == others + 1
    removed = await ended("prune", status="completed", dry_run=False)
    assert removed["state"]["message"] == f"{others + 1} runs were removed"
    assert published(services) == []
    assert "Choose the runs to remove" in (await ended("prune", "FAILED"))["state"]["message"]

    run_dir = f"outputs/evals/arithmetic--small/{run_id}"
    again = await ended("publish-run", run_dir=run_dir)
    assert again["state"]["message"] == f"Published 9 rollouts of run {run_id} in small"
    assert published(services) == [(run_id,)]


async def test_upkeep_fails_with_the_remedy_for_damage(services, run_id, ended):
    shutil.copytree(services.folder / "small", services.folder / "broken")
    assert "segments: 1 before, 1 now" in (await ended("upkeep"))["state"]["message"]
    [segment] = (services.folder / "broken/segments").glob("*/rollouts.parquet")
    segment.write_bytes(segment.read_bytes()[:100])
    found = await ended("upkeep", "FAILED", warehouse="broken")
    assert "nightjar warehouse doctor --fix" in found["state"]["message"]
    assert services.artifact(found["id"], "upkeep").startswith("# 1 to act on")
