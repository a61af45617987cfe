"""The worker of ``nightjar up`` with a server on PostgreSQL: its spare process, and runs that cannot use it."""

import json
import os
import signal
import sys
import time
from contextlib import ExitStack, suppress
from subprocess import PIPE, Popen

import psutil
import pytest
from local_postgresql import PASSWORD, postgresql, programs
from local_services import Services
from waiting import until

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """Services with a plain worker, on PostgreSQL if it is installed."""
    services = Services(tmp_path_factory.mktemp("plain"))
    with ExitStack() as stack:
        if programs():
            services.environment["DB_PASSWORD"] = PASSWORD
            services.database = ("--database-url", stack.enter_context(postgresql("DB_PASSWORD")))
        stack.callback(services.run, "down", "--yes")
        up = services.up()
        assert up.returncode == 0, up.stderr
        yield services


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


def process_of(services, flow_run):
    services.wait_for(flow_run, "RUNNING")
    return psutil.Process(services.process_of(flow_run))


def test_each_run_takes_the_spare_process_of_which_the_worker_starts_another_and_has_its_own_variables(services):
    faults = Faults(latency_ms=2_000)
    with ModelServer(ArithmeticSolver(), require_key="key-of-this-run", faults=faults) as server:
        variables = {"KEY_OF_RUN": "key-of-this-run", "PREFECT_API_REQUEST_TIMEOUT": "47"}
        first = wait_for_sleeping_spare(services)
        flow_run = begin(services, server, "keyed", variables, api_key_var="KEY_OF_RUN")
        process = process_of(services, flow_run)
        assert process.pid == first
        assert process.environ().items() >= variables.items()
        assert services.end_of(flow_run) == "COMPLETED"
        assert server.stats().answered == 2
    with ModelServer(ArithmeticSolver(), faults=faults) as server:
        second = wait_for_sleeping_spare(services, but=first)
        flow_run = begin(services, server, "spared")
        process = process_of(services, flow_run)
        assert process.pid == second
        assert "nightjar.hosting.spare_process" in process.cmdline()  # and no other program in its place
        assert os.getpgid(second) == second
        assert services.end_of(flow_run) == "COMPLETED"


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


def test_the_spare_process_ends_with_its_worker_and_a_run_takes_that_of_the_next_worker(services):
    spare = psutil.Process(wait_for_spare(services))
    before = worker(services).pid
    os.kill(before, signal.SIGKILL)
    spare.wait(120)
    until(lambda: worker(services).pid != before, told=lambda: services.log("up"))
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=2_000)) as server:
        spare = wait_for_sleeping_spare(services)
        flow_run = begin(services, server, "after")
        assert process_of(services, flow_run).pid == spare
        assert services.end_of(flow_run) == "COMPLETED"


def test_runs_are_in_postgresql_and_its_password_in_no_file(services):
    if not services.database:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    services.run("down", "--yes")
    assert not (services.folder / "prefect/prefect.db").exists()
    files = [each for each in services.folder.rglob("*") if each.is_file()]
    assert all(PASSWORD.encode() not in each.read_bytes() for each in files)
    assert not any(PASSWORD in command for command in commands)
