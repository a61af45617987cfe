"""What ``nightjar up`` starts: the command line in a home and a folder of its own, and the server's API."""

import os
import shlex
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE, CompletedProcess

import psutil
from forked import SERVER, ForkServer
from waiting import until

NIGHTJAR = [sys.executable, "-m", "nightjar"]
FORKED_RUNS = Path(__file__).with_name("forked_runs")
POLL_SECONDS = 0.3
"""Each question to the server takes 20 ms of a processor, which the run lacks that is waited for."""
BACKFILL_SECONDS = 2
"""A worker receives the cancel requests of this time again when it starts a run."""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for_answers(server, count):
    """Waits until a model server has answered so many requests."""
    until(lambda: server.stats().answered >= count, told=server.stats)


class Services:
    """The command line in a home and a folder of its own.

    Args:
        folder: its folder.
        is_forking: whether its worker forks the processes of runs; see ``forked_runs``.
    """

    def __init__(self, folder, *, is_forking=False):
        self.port = free_port()
        self.folder = folder
        self.database, self.forks = (), None
        self.api = f"http://127.0.0.1:{self.port}/api"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "NIGHTJAR_HOME": str(folder / "home"), "PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "60",
            "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false", "PREFECT_WORKER_QUERY_SECONDS": "1",
            "NIGHTJAR_LOST_RUNS_SECONDS": "2", "PIP_NO_INDEX": "1",
            "PREFECT_SERVER_EVENTS_MAXIMUM_WEBSOCKET_BACKFILL": f"PT{BACKFILL_SECONDS}S",
        }  # fmt: skip
        if is_forking:
            paths = [str(FORKED_RUNS), *filter(None, [os.environ.get("PYTHONPATH")])]
            self.environment["PYTHONPATH"] = os.pathsep.join(paths)
        for name in ("flows", "tasks", "blocks"):  # of a user's own, which hide none of Nightjar's
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(f'mine = "my own {name}"\n')

    def up(self):
        return self.run("up", "--detach", "--port", str(self.port), *self.database)

    def fork(self):
        """Makes all commands but ``up`` and ``down`` start as forks of a process that has imported Prefect."""
        from nightjar.hosting.flow_runs import _ON_A_TERMINAL
        from nightjar.hosting.server import SETTINGS

        variables = {**SETTINGS, **_ON_A_TERMINAL, **self.environment}  # Prefect reads them when it is imported
        exports = (shlex.quote(f"{name}={value}") for name, value in variables.items() if name.startswith("PREFECT_"))
        program = self.folder / "python"
        program.write_text(f'#!/bin/sh\nexec env {" ".join(exports)} {shlex.quote(sys.executable)} "$@"\n')
        program.chmod(0o755)
        self.forks = ForkServer(program)
        self.forks.prepare("nightjar.flows.evaluation", "nightjar.hosting.deployments")

    def run(self, *arguments, folder=None):
        """Runs a command in a folder, by default that of the services."""
        process = self.begin(*arguments, folder=folder)
        out, errors = process.communicate(timeout=240)
        return CompletedProcess(arguments, process.returncode, out, errors)

    def begin(self, *arguments, folder=None, **variables):
        """Starts a command; with further environment variables, it is no fork."""
        place = {"cwd": folder or self.folder, "env": self.environment | variables, "stdout": PIPE, "stderr": PIPE}
        if self.forks and not variables and arguments[0] not in {"up", "down"}:
            return self.forks.nightjar(*arguments, **place)
        return subprocess.Popen([*NIGHTJAR, *arguments], **place, text=True)

    def call(self, method, path, body=None):
        """Calls the server as ``ask`` does, and returns the content of its response."""
        response = self.ask(method, path, body)
        response.raise_for_status()
        return response.json() if response.content else None

    def ask(self, method, path, body=None):
        """Calls the server, with retries while it starts or its database is busy (503)."""
        import httpx

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

    def create(self, deployment, parameters):
        """Requests a run of a deployment as the form does, and returns the response, which may be a refusal."""
        name = deployment if "/" in deployment else f"{deployment}/{deployment}"
        deployment_id = self.call("GET", f"/deployments/name/{name}")["id"]
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return self.ask("POST", f"/deployments/{deployment_id}/create_flow_run", body)

    def start(self, deployment, parameters):
        response = self.create(deployment, parameters)
        response.raise_for_status()
        return response.json()["id"]

    def retry(self, flow_run_id):
        """Retries an ended run as a person does in the UI, after its worker has recorded the end.

        A run that crashed or was cancelled needs ``wait_for_worker`` first, if its worker is alive.
        """
        state = {"type": "SCHEDULED", "name": "AwaitingRetry"}
        self.call("POST", f"/flow_runs/{flow_run_id}/set_state", {"state": state, "force": True})

    def wait_for_worker(self, flow_run_id):
        """Waits until nothing that a worker does can undo a retry of a run that crashed or was cancelled."""

        def is_settled():
            ends = [state["message"] for state in self.call("GET", path) if state["type"] == "CANCELLED"]
            return said in ends and (len(ends) == 1 or ends[-1] != said)  # Nightjar's own message is put back

        ended = self.flow_run(flow_run_id)["state"]
        path, said = f"/flow_run_states/?flow_run_id={flow_run_id}", "Flow run was cancelled successfully."
        if ended["type"] == "CRASHED":
            until(
                lambda: "exited with status code" in str(self.call("GET", path)),
                told=self.log,
                pause_seconds=POLL_SECONDS,
            )
        else:
            until(is_settled, told=self.log, pause_seconds=POLL_SECONDS)
        safe = datetime.fromisoformat(ended["timestamp"]) + timedelta(seconds=BACKFILL_SECONDS + 2)
        time.sleep(max(0.0, (safe - datetime.now(UTC)).total_seconds()))

    def cancel(self, flow_run_id):
        """Requests the end of a run as the UI does."""
        self.call("POST", f"/flow_runs/{flow_run_id}/set_state", {"state": {"type": "CANCELLING"}})

    def process_of(self, flow_run_id):
        """Returns the id of the process that runs a flow run."""
        return int(self.flow_run(flow_run_id)["infrastructure_pid"].rpartition(":")[2])

    def flow_run(self, flow_run_id):
        return self.call("GET", f"/flow_runs/{flow_run_id}")

    def log_of(self, flow_run_id):
        """Returns the first 200 messages of a flow run."""
        chosen = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "limit": 200}
        return [record["message"] for record in self.call("POST", "/logs/filter", chosen)]

    def save_block(self, name, kind, data):
        """Saves a block of a kind (its slug), as the UI's form does."""
        kind = self.call("GET", f"/block_types/slug/{kind}")["id"]
        chosen = {"block_schemas": {"block_type_id": {"any_": [kind]}}}
        schema = self.call("POST", "/block_schemas/filter", chosen)[0]["id"]
        block = {"name": name, "block_type_id": kind, "block_schema_id": schema, "data": data}
        self.call("POST", "/block_documents/", block)

    def dump(self):
        """Returns what is in the server's database, as SQL."""
        with self._connect() as database:
            return "\n".join(database.iterdump())

    def copy_database(self, path):
        """Copies the database of the server: a new server makes its tables in 10 s."""
        with self._connect() as database, closing(sqlite3.connect(path)) as copy:
            database.backup(copy)

    def _connect(self):
        return closing(sqlite3.connect(f"file:{self.folder / 'prefect/prefect.db'}?mode=ro", uri=True))

    def artifact(self, flow_run_id, key):
        chosen = {"artifacts": {"flow_run_id": {"any_": [flow_run_id]}, "key": {"like_": key}}}
        [found] = self.call("POST", "/artifacts/filter", chosen)
        return found["data"]

    def end_of(self, flow_run_id):
        """Waits for the end of a flow run, and returns its state type."""
        return self.wait_for(flow_run_id, "COMPLETED", "FAILED", "CRASHED", "CANCELLED")

    def log(self, name="worker"):
        return (self.folder / f"home/{name}.log").read_text()

    def wait_for(self, flow_run_id, *types):
        return until(
            lambda: {self.flow_run(flow_run_id)["state_type"]} & {*types}, told=self.log, pause_seconds=POLL_SECONDS
        ).pop()

    def wait_for_runs(self, schedule_id, count):
        """Waits until a schedule has created so many flow runs, and returns them in their order."""

        def made():
            found = self.call("POST", "/flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"})
            made = [each for each in found if (each["created_by"] or {}).get("id") == schedule_id]
            return made if len(made) >= count else []

        return until(made, told=lambda: self.log("server"), pause_seconds=POLL_SECONDS)

    def processes(self):
        """Returns the remaining processes of the services, which have their Prefect home in common."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if (
                    str(SERVER) not in process.cmdline()
                    and process.environ().get("PREFECT_HOME") == self.environment["PREFECT_HOME"]
                ):
                    found.append(process.pid)
        return found
