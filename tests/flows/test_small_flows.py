"""The flows that are one call into Nightjar each, as a worker runs them: rescore, publish-run, prune and upkeep."""

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


def ended(services, flow, state="COMPLETED", **parameters):
    created = services.start(flow, {"warehouse": "small", **parameters})
    services.end_of(created)
    found = services.flow_run(created)
    assert found["state_type"] == state, found["state"]["message"]
    return found


def published(services, columns="run_id"):
    return Warehouse(services.folder / "small").query(f"SELECT {columns} FROM runs ORDER BY started_at").rows


def test_rescore_creates_a_new_run(services, run_id):
    (services.folder / "strict.py").write_text("def never(completion, answer):\n    return 0.0\n")
    flow_run = ended(services, "rescore", run=run_id[:8], rubric="strict.py:never")
    assert {"env:arithmetic", "model:small"} <= set(flow_run["tags"])
    assert services.artifact(flow_run["id"], "results-rescored-arithmetic-small").startswith("# Reward 0.0000")
    assert published(services, "rescored_from, avg_reward") == [(None, 1.0), (run_id, 0.0)]


def test_publish_run_and_prune(services, run_id):
    others = len(published(services)) - 1
    shown = ended(services, "prune", status="completed")
    assert shown["state"]["message"] == f"{others + 1} runs would be removed; dry_run is on"
    assert run_id in services.artifact(shown["id"], "prune")
    assert len(published(services)) == others + 1
    removed = ended(services, "prune", status="completed", dry_run=False)
    assert removed["state"]["message"] == f"{others + 1} runs were removed"
    assert published(services) == []
    assert "Choose the runs to remove" in ended(services, "prune", "FAILED")["state"]["message"]

    run_dir = f"outputs/evals/arithmetic--small/{run_id}"
    again = ended(services, "publish-run", run_dir=run_dir)
    assert again["state"]["message"] == f"Published 9 rollouts of run {run_id} in small"
    assert published(services) == [(run_id,)]


def test_upkeep_fails_with_the_remedy_for_damage(services, run_id):
    shutil.copytree(services.folder / "small", services.folder / "broken")
    assert "segments: 1 before, 1 now" in ended(services, "upkeep")["state"]["message"]
    [segment] = (services.folder / "broken/segments").glob("*/rollouts.parquet")
    segment.write_bytes(segment.read_bytes()[:100])
    found = ended(services, "upkeep", "FAILED", warehouse="broken")
    assert "nightjar warehouse doctor --fix" in found["state"]["message"]
    assert services.artifact(found["id"], "upkeep").startswith("# 1 to act on")
