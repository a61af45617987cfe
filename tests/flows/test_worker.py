"""The worker of ``nightjar up`` on a real server: its spare process, and runs that cannot use it."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from subprocess import PIPE, Popen

import psutil
import pytest
from waiting import until

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = pytest.mark.long


def worker(services):
    pid, _ = json.loads((services.folder / "home/up.json").read_text())["services"]["The worker"]
    return psutil.Process(pid)


def wait_for_spare(services, but=0):
    """Waits until the worker has a spare process other than ``but``, and returns its process id."""

    def is_spare(process):
        with suppress(psutil.Error):  # a process that has just ended
            return process.pid != but and "nightjar.hosting.spare_process" in process.cmdline()

    return until(lambda: [*filter(is_spare, worker(services).children())], told=services.log)[0].pid


def wait_until_it_sleeps(pid):
    """Waits until a process has waited for input for a second. One that waits for a processor is not asleep."""
    times = 0
    while times < 20:
        times = times + 1 if psutil.Process(pid).status() == psutil.STATUS_SLEEPING else 0
        time.sleep(0.05)


def wait_for_sleeping_spare(services, but=0):
    while True:
        spare = wait_for_spare(services, but)
        with suppress(psutil.NoSuchProcess):  # a run of an earlier test had it, and has ended
            wait_until_it_sleeps(spare)
            return spare


def begin(services, server, model, variables=None, **parameters):
    """Requests a run with environment variables of its own, and returns its id."""
    size = {"num_examples": 2, "rollouts_per_example": 1}
    given = {"env_id": "arithmetic", "model": model, "base_url": server.url, **size, **parameters}
    deployment_id = services.call("GET", "/deployments/name/evaluate/evaluate")["id"]
    body = {"parameters": given, "state": {"type": "SCHEDULED"}, "job_variables": {"env": variables or {}}}
    return services.call("POST", f"/deployments/{deployment_id}/create_flow_run", body)["id"]


def test_each_run_takes_the_spare_process_and_the_worker_starts_another(services):
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=2_000)) as server:
        spare = 0
        for model in ("spared", "spared-again"):
            spare = wait_for_sleeping_spare(services, but=spare)
            flow_run = begin(services, server, model)
            services.wait_for(flow_run, "RUNNING")
            process = psutil.Process(services.process_of(flow_run))
            assert process.pid == spare
            assert "nightjar.hosting.spare_process" in process.cmdline()  # and no other program in its place
            assert os.getpgid(spare) == spare
            assert services.end_of(flow_run) == "COMPLETED"


def test_a_run_has_its_own_environment_variables(services):
    faults = Faults(latency_ms=2_000)
    with ModelServer(ArithmeticSolver(), require_key="key-of-this-run", faults=faults) as server:
        variables = {"KEY_OF_RUN": "key-of-this-run", "PREFECT_API_REQUEST_TIMEOUT": "47"}
        flow_run = begin(services, server, "keyed", variables, api_key_var="KEY_OF_RUN")
        services.wait_for(flow_run, "RUNNING")
        assert psutil.Process(services.process_of(flow_run)).environ().items() >= variables.items()
        assert services.end_of(flow_run) == "COMPLETED"
        assert server.stats().answered == 2


@pytest.mark.parametrize("change", ["nothing", "file", "folder", "variable"])
def test_a_spare_process_that_does_not_fit_is_replaced_by_the_command(tmp_path, change):
    imported = tmp_path / "sitecustomize.py"
    imported.write_text("")
    own = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "nightjar.hosting.spare_process"]
    spare = Popen(command, cwd=tmp_path, env=own, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    wait_until_it_sleeps(spare.pid)
    if change == "file":
        imported.write_text("CHANGED = True")
    folder = tmp_path.parent if change == "folder" else tmp_path
    wanted = {**own, "PREFECT__FLOW_RUN_ID": "no id", **({"OTHER": "1"} if change == "variable" else {})}
    program = "import os; print('replaced in', os.getcwd(), os.environ.get('OTHER'))"
    request = {"command": [sys.executable, "-c", program], "environment": wanted, "folder": str(folder)}
    printed, errors = spare.communicate(json.dumps(request), timeout=120)
    if change == "nothing":
        assert (spare.returncode, printed) == (1, "")
        assert "Invalid flow run id" in errors  # Prefect's engine was started
    else:
        assert printed == f"replaced in {folder} {wanted.get('OTHER')}\n"


def test_the_spare_process_ends_with_its_worker(services):
    spare = psutil.Process(wait_for_spare(services))
    os.kill(worker(services).pid, signal.SIGKILL)
    spare.wait(120)
    with ModelServer(ArithmeticSolver()) as server:
        assert services.end_of(begin(services, server, "after")) == "COMPLETED"
