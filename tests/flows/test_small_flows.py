"""The flows that are one call into Nightjar each, as a worker runs them: rescore, publish-run, prune and upkeep."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from local_services import Services

from nightjar.model_server import ArithmeticSolver, ModelServer
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="module")
def run_id(services: Services) -> str:
    """The id of a run that is published in a warehouse of these tests' own."""
    with ModelServer(ArithmeticSolver()) as server:
        typed = ("arithmetic", "-m", "small", "-b", server.url, "-n", "3", "--warehouse", "small", "--direct", "--json")
        ran = services.run("eval", "run", *typed)
    assert ran.returncode == 0, ran.stderr
    return str(json.loads(ran.stdout)["run_id"])


def ended(services: Services, flow: str, state: str = "COMPLETED", **parameters: Any) -> Any:
    """Runs a deployment, and returns its flow run when that has ended in a state."""
    created = services.create(flow, {"warehouse": "small", **parameters}).json()["id"]
    services.wait_for(created, "COMPLETED", "FAILED", "CRASHED")
    found = services.call("GET", f"/flow_runs/{created}")
    assert found["state_type"] == state, found["state"]["message"]
    return found


def artifact(services: Services, flow_run: Any, key: str) -> Any:
    chosen = {"artifacts": {"flow_run_id": {"any_": [flow_run["id"]]}, "key": {"any_": [key]}}}
    [found] = services.call("POST", "/artifacts/filter", chosen)
    return found["data"]


def published(services: Services, columns: str = "run_id") -> list[tuple[Any, ...]]:
    return Warehouse(services.folder / "small").query(f"SELECT {columns} FROM runs ORDER BY started_at").rows


def test_rescore_makes_a_run_of_its_own(services: Services, run_id: str) -> None:
    (services.folder / "strict.py").write_text("def never(completion, answer):\n    return 0.0\n")
    flow_run = ended(services, "rescore", run=run_id[:8], rubric="strict.py:never")
    assert {"env:arithmetic", "model:small"} <= set(flow_run["tags"])
    assert artifact(services, flow_run, "results-rescored-arithmetic-small").startswith("# Reward 0.0000")
    assert published(services, "rescored_from, avg_reward") == [(None, 1.0), (run_id, 0.0)]


def test_publish_run_and_prune(services: Services, run_id: str) -> None:
    others = len(published(services)) - 1
    shown = ended(services, "prune", status="completed")
    assert shown["state"]["message"] == f"{others + 1} runs would be removed; dry_run is on"
    assert run_id in artifact(services, shown, "prune")
    assert len(published(services)) == others + 1
    removed = ended(services, "prune", status="completed", dry_run=False)
    assert removed["state"]["message"] == f"{others + 1} runs were removed"
    assert published(services) == []
    assert "Choose the runs to remove" in ended(services, "prune", "FAILED")["state"]["message"]

    run_dir = f"outputs/evals/arithmetic--small/{run_id}"
    again = ended(services, "publish-run", run_dir=run_dir)
    assert again["state"]["message"] == f"Published 9 rollouts of run {run_id} in small"
    assert published(services) == [(run_id,)]


def test_upkeep_says_what_is_to_be_done(services: Services, run_id: str) -> None:
    shutil.copytree(services.folder / "small", services.folder / "broken")
    assert "segments: 1 before, 1 now" in ended(services, "upkeep")["state"]["message"]
    [segment] = (services.folder / "broken/segments").glob("*/rollouts.parquet")
    segment.write_bytes(segment.read_bytes()[:100])
    found = ended(services, "upkeep", "FAILED", warehouse="broken")
    assert "nightjar warehouse doctor --fix" in found["state"]["message"]
    assert artifact(services, found, "upkeep").startswith("# 1 to act on")
