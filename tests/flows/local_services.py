"""What ``nightjar up`` starts: the command line in a home and a folder of its own, and the server's API."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

NIGHTJAR = [sys.executable, "-m", "nightjar"]


def free_port() -> int:
    """Returns a port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Services:
    """The command line in a home and a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.api = f"http://127.0.0.1:{self.port}/api"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "NIGHTJAR_HOME": str(folder / "home"),
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "NIGHTJAR_LOST_RUNS_SECONDS": "1",
        }
        for name in ("flows", "tasks", "blocks"):  # of a user's own, which hide none of Nightjar's
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(f'mine = "my own {name}"\n')

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--detach", "--port", str(self.port))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*NIGHTJAR, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=240
        )

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Asks the server, as ``ask`` does, for what it has."""
        response = self.ask(method, path, body)
        response.raise_for_status()
        return response.json() if response.content else None

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Asks the server; again while it is being started, or its database is busy and it answers 503."""
        for left in reversed(range(60)):
            try:
                response = httpx.request(method, f"{self.api}{path}", json=body, timeout=30)
                if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    break
            except httpx.TransportError:
                if not left:
                    raise
            time.sleep(1)
        return response

    def create(self, deployment: str, parameters: dict[str, Any]) -> httpx.Response:
        """Asks the server for a run of a deployment, as the form does, whatever the answer."""
        deployment_id = self.call("GET", f"/deployments/name/{deployment}/{deployment}")["id"]
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return self.ask("POST", f"/deployments/{deployment_id}/create_flow_run", body)

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
