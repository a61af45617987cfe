"""Work pools whose runs are containers: what ``nightjar deploy --pool docker`` registers, and runs in a real engine.

The run in containers needs an engine and the image: ``apt-get install podman``, the address of its socket in
``DOCKER_HOST``, and ``make image`` (``NIGHTJAR_TEST_IMAGE`` names another image).
"""

import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from subprocess import STDOUT, Popen

import pytest
from local_services import BACKFILL_SECONDS, wait_for_answers
from typer import BadParameter
from waiting import until

from nightjar.cli.app import app
from nightjar.errors import ServiceError
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = pytest.mark.long
DOCKERFILE = Path(__file__).parents[2] / "deployments/Dockerfile"
IMAGE = os.environ.get("NIGHTJAR_TEST_IMAGE", "nightjar")


@pytest.fixture
def deploy(prefect_server, own_folder, two_deployments):
    """Registers deployments of a prefix, by default from this folder in a pool of type docker."""
    from nightjar.hosting.deployments import Wanted, deploy

    return lambda prefix, folder=own_folder, pool="docker", **wanted: deploy(
        Wanted(folder, prefix, pool=pool, **wanted)
    )


def defaults_of(services, name):
    properties = services.call("GET", f"/work_pools/{name}")["base_job_template"]["variables"]["properties"]
    return {variable: schema.get("default") for variable, schema in properties.items()}


@pytest.fixture
def container_of(services, in_process):
    """Returns how Prefect's worker of type docker would configure the container of a run."""
    from prefect_docker.worker import DockerWorkerJobConfiguration

    async def container_of(prefix):
        template = services.call("GET", f"/work_pools/{prefix}-nightjar")["base_job_template"]
        variables = services.call("GET", f"/deployments/name/evaluate/{prefix}-evaluate")["job_variables"]
        async with in_process.get_client() as client:
            return await DockerWorkerJobConfiguration.from_template_and_values(template, variables, client=client)

    return container_of


async def test_a_container_runs_in_the_folder_of_its_deployment_as_the_user(own_folder, deploy, container_of):
    await deploy("boxed")
    found = await container_of("boxed")
    assert (found.image, found.image_pull_policy, found.auto_remove) == ("nightjar", "IfNotPresent", True)
    assert found.container_create_kwargs == {
        "init": True, "working_dir": str(own_folder), "user": f"{os.getuid()}:{os.getgid()}",
    }  # fmt: skip
    assert found.volumes[0] == f"{own_folder}:{own_folder}"
    assert (found.networks, found.network_mode, found.mem_limit) == ([], None, None)  # Prefect's worker chooses
    assert found.env["PREFECT_HOME"] == "/var/lib/nightjar/.prefect"
    assert found.env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    assert "HOME=/var/lib/nightjar " in DOCKERFILE.read_text()


async def test_an_existing_pool_and_a_night_keep_what_a_user_set_except_the_given_image(own_folder, services, deploy):
    await deploy("kept", image="team/nightjar:1")
    template = services.call("GET", "/work_pools/kept-nightjar")["base_job_template"]
    template["variables"]["properties"]["volumes"]["default"] = ["work:/evals"]
    services.call("PATCH", "/work_pools/kept-nightjar", {"base_job_template": template})
    night = services.call("GET", "/deployments/name/benchmark/kept-nightly-benchmark")
    assert night["parameters"] == {"deployment": "evaluate/kept-evaluate"}  # in containers, too
    chosen = {"parameters": {"deployment": "evaluate/evaluate"}}
    services.call("PATCH", f"/deployments/{night['id']}", chosen)
    [change, *_] = await deploy("kept")
    assert change.kind == "keep"
    assert services.call("GET", f"/deployments/{night['id']}").items() >= chosen.items()
    [change, *_] = await deploy("kept", image="team/nightjar:2")
    assert change.details == ("image: team/nightjar:1 → team/nightjar:2",)
    found = defaults_of(services, "kept-nightjar")
    assert (found["image"], found["volumes"]) == ("team/nightjar:2", ["work:/evals"])
    moved = own_folder / "moved"
    moved.mkdir()
    await deploy("kept", moved, is_taken_over=True)
    assert defaults_of(services, "kept-nightjar")["volumes"][0] == f"{moved}:{moved}"


async def test_the_template_of_prefect_is_replaced_because_its_runs_lose_their_results(
    own_folder, services, deploy, container_of
):
    variables = {"type": "object", "properties": {"image": {"default": None}, "networks": {"default": ["team"]}}}
    template = {"variables": variables, "job_configuration": {"image": "{{ image }}", "networks": "{{ networks }}"}}
    pool = {"name": "theirs-nightjar", "type": "docker", "base_job_template": template}
    services.call("POST", "/work_pools/", pool)
    await deploy("theirs")
    found = await container_of("theirs")
    assert (found.image, found.networks) == ("nightjar", ["team"])
    assert found.container_create_kwargs["working_dir"] == str(own_folder)


async def test_a_pool_of_another_type_is_refused(services, deploy):
    await deploy("plain", pool=None)
    with pytest.raises(ServiceError, match=r"'plain-nightjar'.*'process'.*--name-prefix NAME"):
        await deploy("plain")
    assert services.call("GET", "/work_pools/plain-nightjar")["type"] == "process"


def test_the_command_shows_the_pool_and_the_status_shows_that_it_has_no_worker(services):
    planned = json.loads(services.run("deploy", "--pool", "docker", "--dry-run", "--json").stdout)
    [pool] = [each for each in planned if each["what"] == "work pool docker-nightjar"]
    assert (pool["becomes"], pool["details"][:2]) == ("create", ["type: docker", "image: nightjar"])
    command = "prefect worker start --pool docker-nightjar --type docker"
    made = services.run("deploy", "--pool", "docker", "--yes")
    assert made.returncode == 0, made.stderr
    assert command in made.stdout
    shown = services.run("status").stdout
    assert "nightjar, ready" in shown
    assert f"docker-nightjar (docker), has no worker: {command}" in shown


def test_an_image_without_containers_is_a_usage_error():
    with pytest.raises(BadParameter, match="--pool docker"):
        app(["deploy", "--image", "other"], standalone_mode=False)


@pytest.fixture
def engine(engine):
    if not engine.images.list(IMAGE):
        pytest.skip(f"The engine has no image {IMAGE!r}. Build it: make image")
    return engine


@contextmanager
def docker_worker(services):
    with (services.folder / "docker-worker.log").open("wb") as log:
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "docker-nightjar", "--type", "docker"]
        worker = Popen(command, cwd=services.folder, env=services.environment, stdout=log, stderr=STDOUT)
        try:
            yield
        finally:
            worker.terminate()
            worker.wait()


def test_a_cancelled_run_leaves_no_container_and_a_retry_does_the_rest_in_another(services, engine):
    def containers():
        return engine.containers.list(all=True, filters={"label": f"io.prefect.flow-run-id={flow_run}"})

    assert services.run("deploy", "--pool", "docker", "--image", IMAGE, "--yes").returncode == 0
    with docker_worker(services), ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=500)) as server:
        size = {"num_examples": 20, "rollouts_per_example": 2, "max_concurrent": 4}
        given = {"env_id": "arithmetic", "model": "boxed", "base_url": server.url, **size}
        flow_run = services.start("evaluate/docker-evaluate", given)
        wait_for_answers(server, 8)
        [container] = containers()
        assert services.flow_run(flow_run)["infrastructure_pid"].endswith(container.id)
        services.cancel(flow_run)
        assert services.wait_for(flow_run, "CANCELLED", "CRASHED") == "CANCELLED"
        until(lambda: not containers(), told=services.log)
        assert "rollouts of run" in services.flow_run(flow_run)["state"]["message"]
        time.sleep(BACKFILL_SECONDS + 2)
        services.retry(flow_run)
        assert services.end_of(flow_run) == "COMPLETED"
        assert server.stats().answered - 40 in range(5)  # at most the requests that the cancel interrupted
    counted = services.run("sql", "SELECT scored, avg_reward FROM runs WHERE model = 'boxed'", "--json").stdout
    assert json.loads(counted) == [{"scored": 40, "avg_reward": 1.0}]
