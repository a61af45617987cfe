"""Eight evaluations on four workers, with Prefect's server on SQLite and on PostgreSQL: no lock error anywhere.

make many-workers
"""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest
from local_postgresql import PASSWORD, postgresql
from local_services import Services

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.skipif("NIGHTJAR_MANY_WORKERS" not in os.environ, reason="takes minutes: make many-workers")

EVALUATIONS, WORKERS, AT_ONCE = 8, 4, 2
LOCK = re.compile(r"database is locked|deadlock|could not serialize|lock timeout|OperationalError", re.IGNORECASE)
WORKER = (sys.executable, "-P", "-m", "prefect", "worker", "start", "--pool", "four")


@contextmanager
def workers(services):
    """Starts four workers of one pool, each for two concurrent runs, and yields their logs."""
    pool = services.call("GET", "/work_pools/nightjar")
    services.call("POST", "/work_pools/", {"name": "four", "type": "process"} | {
        "base_job_template": pool["base_job_template"]})  # fmt: skip
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    services.call("PATCH", f"/deployments/{deployment['id']}", {"work_pool_name": "four"})
    logs = [services.folder / f"worker-{number}.log" for number in range(WORKERS)]
    started = []
    try:
        for log in logs:
            with log.open("wb") as output:
                command = [*WORKER, "--name", log.stem, "--limit", str(AT_ONCE)]
                place = {"cwd": services.folder, "env": services.environment}
                started.append(subprocess.Popen(command, **place, stdout=output, stderr=output))
        yield logs
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


def log_of(services, flow_run_id):
    lines = []
    chosen = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}}
    while page := services.call("POST", "/logs/filter", {**chosen, "offset": len(lines)}):
        lines += [line["message"] for line in page]
    return lines


@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"])
def test_eight_evaluations_on_four_workers(tmp_path, database):
    with ExitStack() as stack:
        services = Services(tmp_path)
        if database == "PostgreSQL":
            services.environment["DB_PASSWORD"] = PASSWORD
            services.database = ("--database-url", stack.enter_context(postgresql("DB_PASSWORD")))
        up = services.up()
        assert up.returncode == 0, up.stderr
        stack.callback(services.run, "down", "--yes")
        server = stack.enter_context(ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=20)))
        logs = stack.enter_context(workers(services))
        began = time.monotonic()
        common = {"env_id": "arithmetic", "base_url": server.url, "num_examples": 100, "rollouts_per_example": 2}
        runs = [services.start("evaluate", {**common, "model": f"m{number}"}) for number in range(EVALUATIONS)]
        assert [services.end_of(each) for each in runs] == ["COMPLETED"] * EVALUATIONS
        seconds = time.monotonic() - began
        published = Warehouse(services.folder / "outputs/warehouse").query("SELECT model, scored FROM runs ORDER BY 1")
        assert published.rows == [(f"m{number}", 200) for number in range(EVALUATIONS)]

        said = {log.name: log.read_text().splitlines() for log in logs}
        said |= {each: log_of(services, each) for each in runs}
        said["states"] = [services.flow_run(each)["state"]["message"] or "" for each in runs]
        said["up"] = (services.folder / "home/worker.log").read_text().splitlines()
        taken = [sum("submitted to infrastructure" in line for line in said[log.name]) for log in logs]
        server_log = (services.folder / "home/server.log").read_text().splitlines()
    print(
        f"{database}: {EVALUATIONS} evaluations of 200 rollouts in {seconds:.1f} s, runs a worker: {taken}, "
        f"{sum(map(len, said.values()))} lines of log, {sum(bool(LOCK.search(line)) for line in server_log)} lines of "
        f"the server's own {len(server_log)} about locks"
    )
    assert {name: found for name in said if (found := [line for line in said[name] if LOCK.search(line)])} == {}
    assert sum(taken) == EVALUATIONS
