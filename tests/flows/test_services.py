"""``nightjar up``, runs that a worker runs, on Retry and by a schedule, ``nightjar down``: real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from nightjar.testing import ArithmeticSolver, Faults, ModelServer

NIGHTJAR = [sys.executable, "-m", "nightjar"]


class Services:
    """The command line in a home and a folder of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.api = f"http://127.0.0.1:{self.port}/api"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "NIGHTJAR_HOME": str(folder / "home"),
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self.api,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*NIGHTJAR, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=240
        )

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Asks the server; again, as Prefect's own client does, while its database is busy and it answers 503."""
        for _ in range(30):
            response = httpx.request(method, f"{self.api}{path}", json=body, timeout=30)
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            time.sleep(1)
        response.raise_for_status()
        return response.json() if response.content else None

    def wait_for(self, flow_run_id: str, *types: str) -> str:
        for _ in range(600):
            state = self.call("GET", f"/flow_runs/{flow_run_id}")["state_type"]
            if state in types:
                return str(state)
            time.sleep(0.2)
        raise AssertionError(f"flow run {flow_run_id} is {state}; {(self.folder / 'home/worker.log').read_text()}")

    def wait_for_first_run(self, schedule_id: str) -> Any:
        """Returns the earliest flow run of a schedule, when the server's scheduler has made it."""
        made_by = {"type": "SCHEDULE", "id": schedule_id}
        for _ in range(300):
            found = self.call("POST", "/flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"})
            for flow_run in found:
                if (flow_run["created_by"] or {}).items() >= made_by.items():
                    return flow_run
            time.sleep(0.2)
        raise AssertionError(f"the schedule made no run; {(self.folder / 'home/server.log').read_text()}")

    def processes(self) -> list[int]:
        """Returns what is left of the services, known by the Prefect home that they were started with."""
        mine = f"PREFECT_HOME={self.environment['PREFECT_HOME']}"
        found = []
        for process in psutil.process_iter():
            try:
                if f"{mine.partition('=')[2]}" == process.environ().get("PREFECT_HOME"):
                    found.append(process.pid)
            except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return found


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """What ``nightjar up`` starts, for all tests; ``nightjar down`` leaves nothing of it."""
    services = Services(tmp_path_factory.mktemp("services"))
    try:
        up = services.run("up", "--detach", "--port", str(services.port))
        assert up.returncode == 0, up.stderr
        assert f"http://127.0.0.1:{services.port}" in up.stdout
        yield services
    finally:
        down = services.run("down")
    assert (down.returncode, down.stdout) == (0, "Stopped.\n")
    assert services.processes() == []
    assert services.run("down").stdout == "Nothing is running.\n"


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
