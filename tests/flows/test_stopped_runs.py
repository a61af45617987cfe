"""Runs that are stopped, in the UI and on a terminal: state, metadata and SQL agree, and what is finished is kept."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from local_services import NIGHTJAR, Services

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

ROLLOUTS = 60
SLOW = Faults(latency_ms=300)


def metadata_of(folder: Path, model: str) -> dict[str, Any]:
    [path] = folder.glob(f"outputs/evals/arithmetic--{model}/*/metadata.json")
    metadata: dict[str, Any] = json.loads(path.read_bytes())
    return metadata


def in_sql(folder: Path, model: str) -> list[tuple[Any, ...]]:
    question = "SELECT status, scored FROM runs WHERE model = $model"
    return Warehouse(folder / "outputs/warehouse").query(question, {"model": model}).rows


def wait_for_answers(server: ModelServer, count: int) -> None:
    while server.stats().answered < count:
        time.sleep(0.05)


def test_a_cancel_in_the_ui_keeps_what_is_finished_and_retry_does_the_rest(services: Services) -> None:
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        parameters = {
            "env_id": "arithmetic", "model": "stopped-in-ui", "base_url": server.url, "num_examples": ROLLOUTS,
            "rollouts_per_example": 1, "max_concurrent": 2,
        }  # fmt: skip
        created = services.call("POST", f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
        wait_for_answers(server, 6)
        page = f"/flow_runs/{created['id']}"
        services.call("POST", f"{page}/set_state", {"state": {"type": "CANCELLING"}})
        since = time.monotonic()
        assert services.wait_for(created["id"], "CANCELLED", "CRASHED", "FAILED") == "CANCELLED"
        assert time.monotonic() - since < 10
        answered = server.stats().answered
        metadata = metadata_of(services.folder, "stopped-in-ui")
        assert metadata["status"] == "cancelled"
        assert 4 <= metadata["scored"] <= answered < ROLLOUTS
        assert in_sql(services.folder, "stopped-in-ui") == [("cancelled", metadata["scored"])]
        assert errors_logged(services, created["id"]) == []

        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
        services.call("POST", f"{page}/set_state", retry)
        assert services.wait_for(created["id"], "COMPLETED", "CRASHED", "FAILED") == "COMPLETED"
        assert server.stats().answered <= ROLLOUTS + 2, "only what was in flight is asked again"
    assert in_sql(services.folder, "stopped-in-ui") == [("completed", ROLLOUTS)]


def errors_logged(services: Services, flow_run_id: str) -> list[str]:
    """Returns what the log of a flow run has of level ERROR, when it has all."""
    chosen = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "limit": 200}
    for _ in range(50):
        lines = services.call("POST", "/logs/filter", chosen)
        if any(line["message"] == "Cancelled by SIGTERM" for line in lines):
            break
        time.sleep(0.2)
    return [line["message"] for line in lines if line["level"] >= 40]


def test_ctrl_c_ends_a_flow_run_on_a_terminal(services: Services, tmp_path: Path) -> None:
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        size = ("-n", str(ROLLOUTS), "-r", "1", "-c", "2")
        process = subprocess.Popen(
            [*NIGHTJAR, "eval", "run", "arithmetic", "-m", "typed", "-b", server.url, *size],
            cwd=tmp_path, env=services.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for_answers(server, 6)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=15)
    assert process.returncode == 130
    assert not [line for line in errors.splitlines() if "ERROR" in line or "Traceback" in line]
    metadata = metadata_of(tmp_path, "typed")
    assert metadata["status"] == "cancelled"
    assert in_sql(tmp_path, "typed") == [("cancelled", metadata["scored"])]
    assert services.call("GET", f"/flow_runs/{metadata['flow_run_id']}")["state_type"] == "CANCELLED"


def test_its_time_is_over(services: Services, tmp_path: Path) -> None:
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        limit = ("-n", str(ROLLOUTS), "-r", "1", "-c", "2", "--timeout-minutes", "0.03")
        ended = subprocess.run(
            [*NIGHTJAR, "eval", "run", "arithmetic", "-m", "limited", "-b", server.url, *limit],
            cwd=tmp_path, env=services.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert ended.returncode == 1
    assert "Error: Stopped after 0.03 minutes (timeout_minutes)" in ended.stderr
    metadata = metadata_of(tmp_path, "limited")
    assert (metadata["status"], in_sql(tmp_path, "limited")) == ("timed_out", [("timed_out", metadata["scored"])])
    flow_run = services.call("GET", f"/flow_runs/{metadata['flow_run_id']}")
    assert (flow_run["state_type"], flow_run["state_name"]) == ("FAILED", "TimedOut")


def test_a_temporary_server_ends_with_its_command_even_if_that_is_killed(own_folder: Path) -> None:
    own = Services(own_folder)  # of which nothing is started but the command
    del own.environment["PREFECT_API_URL"]
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        command = [*NIGHTJAR, "eval", "run", "arithmetic", "-m", "killed", "-b", server.url, "-n", "500", "--prefect"]
        process = subprocess.Popen(command, cwd=own_folder, env=own.environment, stderr=subprocess.DEVNULL)
        wait_for_answers(server, 2)
        assert len(own.processes()) > 1
        process.kill()
        process.wait()
    end = time.monotonic() + 60
    while own.processes():
        assert time.monotonic() < end, own.processes()
        time.sleep(0.2)
