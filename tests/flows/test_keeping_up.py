"""What ``nightjar up`` keeps: what was set on a deployment, its processes, and runs that lose theirs."""

import json
import os
import re
import signal
import sys
from contextlib import suppress

import pytest
from local_services import POLL_SECONDS, wait_for_answers
from waiting import until

from nightjar.errors import ServiceError, WarehouseError
from nightjar.hosting.active_runs import WITHOUT_HEARTBEATS
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

SLOW = Faults(latency_ms=100)
AT_ONCE = 4
SET = {"tags": ["ours"], "concurrency_limit": 2, "description": "What we do every night",
       "parameters": {"env_id": "arithmetic", "model": "set"}}  # fmt: skip
FORMER = {"entrypoint": "flows.evaluation.evaluate", "version": "0"}
FORMER_COMMAND = "/usr/bin/python3 -P -m nightjar.hosting.launch prefect.engine"
"""What a deployment had that was registered when flows were no part of the package."""


def start(services, server, model, num_examples, **parameters):
    size = {"num_examples": num_examples, "rollouts_per_example": 1, "max_concurrent": AT_ONCE}
    given = {"env_id": "arithmetic", "model": model, "base_url": server.url, **size, **parameters}
    return services.start("evaluate", given)


def status(services):
    return json.loads(services.run("status", "--json").stdout)


def deployment_of(services, name):
    """Returns a deployment without the fields that its workers change."""
    found = services.call("GET", f"/deployments/name/evaluate/{name}")
    return {key: value for key, value in found.items() if key not in {"last_polled", "status"}}


@pytest.fixture
def deploy(prefect_server, own_folder, two_deployments):
    """Registers deployments of a prefix, by default from this folder."""
    from nightjar.hosting.deployments import Wanted, deploy

    return lambda prefix="", folder=own_folder, **wanted: deploy(Wanted(folder, prefix, **wanted))


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def service_pids(services):
    known = json.loads((services.folder / "home/up.json").read_text())["services"]
    return {name: pid for name, (pid, _) in known.items()}


def metadata_of(services, model):
    [path] = services.folder.glob(f"outputs/evals/*--{model}/*/metadata.json")
    return json.loads(path.read_text())


def published(services, model, status):
    """Returns how many rollouts and attempts are published with this status, how many are scored, and their mean."""
    question = """
        SELECT (SELECT count(*) FROM rollouts WHERE run_id = runs.run_id),
            (SELECT count(*) FROM attempts WHERE run_id = runs.run_id), scored, avg_reward
        FROM runs WHERE model = $model AND status = $status
    """

    def found():
        with suppress(WarehouseError):  # nothing is published yet
            asked = {"model": model, "status": status}
            return Warehouse(services.folder / "outputs/warehouse").query(question, asked).rows

    [row] = until(found, told=lambda: services.log("up"), pause_seconds=POLL_SECONDS)
    return row


def test_down_asks_about_runs_and_up_keeps_settings_of_deployments(services):
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    path = f"/deployments/{deployment['id']}"
    own = {**deployment["job_variables"], "env": {"SET": "1"}}
    services.call("PATCH", path, {**SET, "job_variables": own, "version": "0"})
    schedules = [{"schedule": {"cron": "0 2 * * *"}, "parameters": {"model": "nightly"}, "slug": "nightly"}]
    [schedule] = services.call("POST", f"{path}/schedules", schedules)
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        flow_run = start(services, server, "stopped", 2000)
        wait_for_answers(server, 8)
        [shown] = [each for each in status(services)["runs"] if each["id"] == flow_run]
        assert shown["state"] == "RUNNING"
        asked = services.run("down")
        assert asked.returncode == 2
        assert flow_run in asked.stderr
        assert services.run("down", "--yes").stdout == "Stopped.\n"
    assert services.processes() == []
    assert metadata_of(services, "stopped")["status"] == "cancelled"
    assert services.run("status").returncode == 1
    up = services.up()
    assert up.returncode == 0
    assert re.search(r"^Updated: +evaluate/evaluate \((parameter, )?version\)$", up.stdout, re.MULTILINE)
    updated = rf"Updated deployment evaluate/evaluate: (parameter; )?version: 0 → {deployment['version']}\."
    assert re.search(updated, services.log("up"))  # the folder may have new environments
    assert services.flow_run(flow_run)["state_type"] == "CANCELLED"
    found = services.call("GET", path)
    assert all(found[name] == SET[name] for name in ("tags", "description", "parameters"))
    assert found["global_concurrency_limit"]["limit"] == 2
    assert found["job_variables"] == own
    assert [each["id"] for each in found["schedules"]] == [schedule["id"]]
    assert found["version"] == deployment["version"]  # that belongs to the code
    [planned] = [each for each in status(services)["schedules"] if each["id"] == schedule["id"]]
    assert (planned["when"], planned["is_active"]) == ("cron 0 2 * * *", True)
    services.call("DELETE", f"{path}/schedules/{schedule['id']}")
    back = {name: deployment[name] for name in ("tags", "description", "parameters", "job_variables")}
    services.call("PATCH", path, {**back, "concurrency_limit": None})


PRINTING = """\
import sys
import nightjar.environments as environments
import nightjar.environments.rubrics as rubrics

def reward(completion):
    print("scored" * 1000, flush=True)
    print("scored" * 1000, file=sys.stderr, flush=True)
    return 1.0

def load_environment():
    rows = [{"question": f"{n}?", "answer": str(n)} for n in range(200)]
    return environments.SingleTurnEnv(dataset=rows, rubric=rubrics.Rubric(funcs=[reward]))
"""


def test_killed_services_are_restarted_and_no_request_of_their_runs_is_repeated(services, tmp_path):
    (tmp_path / "printing.py").write_text(PRINTING)
    before = service_pids(services)
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        flow_run = start(services, server, "lost", 200, env_id="printing", env_dir_path=str(tmp_path))
        wait_for_answers(server, 20)
        kill(*before.values(), services.process_of(flow_run))
        assert services.end_of(flow_run) == "CRASHED"
        rollouts, attempts, scored, mean = published(services, "lost", "crashed")
        assert 20 - AT_ONCE <= rollouts == scored <= attempts <= server.stats().answered < 200
        assert (mean, metadata_of(services, "lost")["coverage"]) == (1.0, scored / 200)
        services.retry(flow_run)
        wait_for_answers(server, 60)
        kill(service_pids(services)["The worker"])  # this time the run continues, and prints to nobody
        state = {"type": "CRASHED", "name": "Crashed", "message": f"{WITHOUT_HEARTBEATS} Retry resumes it."}
        services.call("POST", f"/flow_runs/{flow_run}/set_state", {"state": state, "force": True})
        services.wait_for(flow_run, "RUNNING")  # its process is alive
        assert services.end_of(flow_run) == "COMPLETED"
        answered = server.stats().answered
    assert metadata_of(services, "lost")["scored"] == 200
    assert published(services, "lost", "completed") == (200, 200, 200, 1.0)
    assert 200 <= answered <= 200 + AT_ONCE  # what was on its way when the run was killed was answered to nobody
    after = service_pids(services)
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())
    log = services.log("up")
    assert log.count("ended by signal 9") >= 4
    assert log.count(f"({flow_run}) is Crashed: its process is gone.") == 1


def test_a_killed_or_cancelled_command_also_ends_on_the_server(services):
    command = ["eval", "run", "arithmetic", "-n", "2000", "-r", "1", "-c", str(AT_ONCE)]
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        for how, wanted in (("cancelled", "CANCELLED"), ("killed", "CRASHED")):
            answered = server.stats().answered
            arguments = [*command, "-m", how, "-b", server.url]
            running = services.begin(*arguments)
            wait_for_answers(server, answered + 4)
            flow_run = metadata_of(services, how)["flow_run_id"]
            [path] = (services.folder / f"outputs/evals/arithmetic--{how}").glob("*/attempts.jsonl")
            until(lambda path=path: len(path.read_bytes().splitlines()) >= 4)
            if how == "killed":
                running.kill()
            else:
                services.cancel(flow_run)
            assert services.end_of(flow_run) == wanted
            running.communicate(timeout=60)
            assert running.returncode == (130 if how == "cancelled" else -signal.SIGKILL)
            assert published(services, how, "cancelled" if how == "cancelled" else "crashed")[1] >= 4


OWN_PACKAGES = """\
import blocks, flows, tasks
import nightjar as vf
from nightjar.flows import evaluate

def right(completion) -> float:
    own = [flows.mine, tasks.mine, blocks.mine] == ["my own flows", "my own tasks", "my own blocks"]
    return float(own and evaluate.name == "evaluate")

def load_environment() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=[{"question": "Why?", "answer": ""}], rubric=vf.Rubric(funcs=[right]))
"""


def test_updated_deployments_keep_a_users_command_and_import_packages_of_their_folder_and_of_nightjar(services):
    before = deployment_of(services, "evaluate")
    own = {**before["job_variables"], "command": f"{sys.executable} -X utf8 -m prefect.engine"}
    former = {**FORMER, "job_variables": {**before["job_variables"], "command": FORMER_COMMAND}}
    services.call("PATCH", f"/deployments/{before['id']}", former)
    query = services.call("GET", "/deployments/name/query/query")["id"]
    services.call("PATCH", f"/deployments/{query}", {"entrypoint": "flows.querying.query", "job_variables": own})
    with ModelServer(ArithmeticSolver()) as server:
        deployed = services.run("deploy", "--yes")
        assert deployed.returncode == 0, deployed.stderr
        changed = "".join(line for line in deployed.stdout.splitlines(keepends=True) if line[0] in "~ ")
        assert changed == (
            "~ deployment evaluate/evaluate\n"
            "    entrypoint: flows.evaluation.evaluate → nightjar.flows.evaluation.evaluate\n"
            f"    version: 0 → {before['version']}\n"
            f"    command: {FORMER_COMMAND} → that of the work pool\n"
            "~ deployment query/query\n"
            "    entrypoint: flows.querying.query → nightjar.flows.querying.query\n"
        )
        (services.folder / "environments").mkdir(exist_ok=True)
        (services.folder / "environments/own_packages.py").write_text(OWN_PACKAGES)
        assert services.end_of(start(services, server, "updated", 1, env_id="own-packages")) == "COMPLETED"
    assert published(services, "updated", "completed") == (1, 1, 1, 1.0)
    found = services.call("GET", f"/deployments/{query}")
    assert found["job_variables"] == own
    asked = services.start("query", {"sql": "SELECT model FROM runs"})
    assert services.end_of(asked) == "COMPLETED"
    services.call("PATCH", f"/deployments/{query}", {"job_variables": before["job_variables"]})


async def test_updating_a_work_pool_keeps_a_users_command(services, deploy):
    for prefix, command, kept in (("former", FORMER_COMMAND, "python -m prefect.engine"), ("own", "run-it", "run-it")):
        variables = {"type": "object", "properties": {"command": {"type": "string", "default": command}}}
        template = {"variables": variables, "job_configuration": {"command": "{{ command }}"}}
        pool = {"name": f"{prefix}-nightjar", "type": "process", "base_job_template": template}
        services.call("POST", "/work_pools/", pool)
        changes = {each.what: each for each in await deploy(prefix)}
        found = services.call("GET", f"/work_pools/{prefix}-nightjar")["base_job_template"]
        assert found["variables"]["properties"]["command"]["default"] == kept
        expected = (f"command: {command} → {kept}",) if kept != command else ()
        assert changes[f"work pool {prefix}-nightjar"].details == expected


def test_the_server_knows_nightjars_blocks(services):
    assert services.call("GET", "/block_types/slug/nightjar-model-endpoint")["name"] == "Nightjar Model Endpoint"
    assert "Failed to load collection" not in services.log("server")


async def test_registering_from_another_folder_needs_a_prefix_or_a_take_over(own_folder, services, deploy):
    from nightjar.hosting.deployments import DEPLOYMENTS, deployment_name

    before = deployment_of(services, "evaluate")
    with pytest.raises(ServiceError, match=rf"belongs to the folder \S+:{services.folder}.*--name-prefix NAME"):
        await deploy()
    assert deployment_of(services, "evaluate") == before
    made = {each.what for each in await deploy("team") if each.kind == "create"}
    assert made >= {f"deployment {deployment_name(each, 'team')}" for each in DEPLOYMENTS}
    moved = own_folder / "moved"
    with pytest.raises(ServiceError, match="--take-over"):
        await deploy("team", moved)
    await deploy("team", moved, is_taken_over=True)
    found = deployment_of(services, "team-evaluate")
    assert found["work_pool_name"] == "team-nightjar"
    assert found["job_variables"]["working_dir"] == str(moved)
    await deploy("team", moved)
    assert deployment_of(services, "team-evaluate") == found  # nothing to change
