"""``nightjar up``, runs that a worker runs, on Retry and by a schedule, ``nightjar down``: real processes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from local_services import Services

from nightjar.testing import ArithmeticSolver, Faults, ModelServer


def test_a_second_start_is_told_how_to_stop_the_first(services: Services) -> None:
    again = services.run("up", "--detach")
    assert again.returncode == 1
    assert "nightjar down" in again.stderr


def test_eval_run_is_a_flow_run(services: Services) -> None:
    with ModelServer(ArithmeticSolver()) as server:
        ran = services.run("eval", "run", "arithmetic", "-m", "typed", "-b", server.url, "-n", "3", "--json")
    assert ran.returncode == 0, ran.stderr
    metadata = json.loads(ran.stdout)
    flow_run = services.call("GET", f"/flow_runs/{metadata['flow_run_id']}")
    assert flow_run["state_type"] == "COMPLETED"
    assert flow_run["name"] == "arithmetic | typed"


def test_retry_does_only_what_is_missing(services: Services) -> None:
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    with ModelServer(ArithmeticSolver(), faults=Faults(rate_500=0.4, seed=1)) as server:
        port = server.port
        parameters = {"env_id": "arithmetic", "model": "retried", "base_url": server.url, "num_examples": 20}
        created = services.call(
            "POST",
            f"/deployments/{deployment['id']}/create_flow_run",
            {"parameters": parameters, "state": {"type": "SCHEDULED"}},
        )
        assert services.wait_for(created["id"], "COMPLETED", "FAILED", "CRASHED") == "FAILED"
        answered = server.stats().answered
    assert 0 < answered < 60
    with ModelServer(ArithmeticSolver(), port=port) as server:
        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
        services.call("POST", f"/flow_runs/{created['id']}/set_state", retry)
        assert services.wait_for(created["id"], "COMPLETED", "CRASHED") == "COMPLETED"
        assert server.stats().answered == 60 - answered


def test_a_schedule_fires(services: Services) -> None:
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    schedules = f"/deployments/{deployment['id']}/schedules"
    due = datetime.now(UTC) + timedelta(seconds=5)
    every_minute = {"interval": 60, "anchor_date": due.isoformat()}
    with ModelServer(ArithmeticSolver()) as server:
        parameters = {"env_id": "arithmetic", "model": "nightly", "base_url": server.url, "num_examples": 2}
        [made] = services.call("POST", schedules, [{"schedule": every_minute, "parameters": parameters}])
        fired = services.wait_for_first_run(made["id"])
        assert services.wait_for(fired["id"], "COMPLETED", "FAILED", "CRASHED") == "COMPLETED"
        services.call("DELETE", f"{schedules}/{made['id']}")
        assert server.stats().answered == 6
    assert fired["auto_scheduled"]
    assert (datetime.fromisoformat(fired["expected_start_time"]) - due).total_seconds() % 60 == 0
