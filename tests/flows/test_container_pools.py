"""Work pools whose runs are containers: what ``nightjar deploy --pool docker`` registers, and runs in a real engine.

The run in containers needs an engine and the image: ``apt-get install podman``, the address of its socket in
``DOCKER_HOST``, and ``make image`` (``NIGHTJAR_TEST_IMAGE`` names another image).
"""

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from subprocess import STDOUT, Popen

import docker
import pytest
from local_services import wait_for_answers
from prefect.client.orchestration import get_client
from prefect_docker.worker import DockerWorkerJobConfiguration
from typer import BadParameter
from waiting import until

from nightjar.cli.app import app
from nightjar.errors import ServiceError
from nightjar.hosting.deployments import Wanted, deploy
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.sandboxes import DockerProvider

pytestmark = pytest.mark.long
DOCKERFILE = Path(__file__).parents[2] / "deployments/Dockerfile"
IMAGE = os.environ.get("NIGHTJAR_TEST_IMAGE", "nightjar")


def pool_of(services, name):
    return services.call("GET", f"/work_pools/{name}")


def defaults_of(services, name):
    properties = pool_of(services, name)["base_job_template"]["variables"]["properties"]
    return {variable: schema.get("default") for variable, schema in properties.items()}


async def container_of(services, prefix):
    """Returns how Prefect's worker of type docker would configure the container of a run."""
    template = pool_of(services, f"{prefix}-nightjar")["base_job_template"]
    deployment = services.call("GET", f"/deployments/name/evaluate/{prefix}-evaluate")
    async with get_client() as client:
        return await DockerWorkerJobConfiguration.from_template_and_values(
            template, deployment["job_variables"], client=client
        )


@pytest.mark.usefixtures("prefect_server")
class TestWhatIsRegistered:
    async def test_a_container_runs_in_the_folder_of_its_deployment_as_the_user(self, own_folder, services):
        await deploy(Wanted(own_folder, "boxed", pool="docker"))
        found = await container_of(services, "boxed")
        assert (found.image, found.image_pull_policy, found.auto_remove) == ("nightjar", "IfNotPresent", True)
        assert found.container_create_kwargs == {
            "init": True, "working_dir": str(own_folder), "user": f"{os.getuid()}:{os.getgid()}",
        }  # fmt: skip
        assert found.volumes[0] == f"{own_folder}:{own_folder}"
        assert (found.networks, found.network_mode, found.mem_limit) == ([], None, None)  # Prefect's worker chooses
        assert found.env["PREFECT_HOME"] == "/var/lib/nightjar/.prefect"
        assert found.env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
        assert "HOME=/var/lib/nightjar " in DOCKERFILE.read_text()

    async def test_an_existing_pool_keeps_what_a_user_set_except_the_given_image(self, own_folder, services):
        await deploy(Wanted(own_folder, "kept", pool="docker", image="team/nightjar:1"))
        template = pool_of(services, "kept-nightjar")["base_job_template"]
        template["variables"]["properties"]["volumes"]["default"] = ["work:/evals"]
        services.call("PATCH", "/work_pools/kept-nightjar", {"base_job_template": template})
        [change, *_] = await deploy(Wanted(own_folder, "kept", pool="docker"))
        assert change.kind == "keep"
        [change, *_] = await deploy(Wanted(own_folder, "kept", pool="docker", image="team/nightjar:2"))
        assert change.details == ("image: team/nightjar:1 → team/nightjar:2",)
        found = defaults_of(services, "kept-nightjar")
        assert (found["image"], found["volumes"]) == ("team/nightjar:2", ["work:/evals"])
        moved = own_folder / "moved"
        moved.mkdir()
        await deploy(Wanted(moved, "kept", is_taken_over=True, pool="docker"))
        assert defaults_of(services, "kept-nightjar")["volumes"][0] == f"{moved}:{moved}"

    async def test_the_template_of_prefect_is_replaced_because_its_runs_lose_their_results(self, own_folder, services):
        variables = {"type": "object", "properties": {"image": {"default": None}, "networks": {"default": ["team"]}}}
        template = {"variables": variables, "job_configuration": {"image": "{{ image }}", "networks": "{{ networks }}"}}
        pool = {"name": "theirs-nightjar", "type": "docker", "base_job_template": template}
        services.call("POST", "/work_pools/", pool)
        await deploy(Wanted(own_folder, "theirs", pool="docker"))
        found = await container_of(services, "theirs")
        assert (found.image, found.networks) == ("nightjar", ["team"])
        assert found.container_create_kwargs["working_dir"] == str(own_folder)

    async def test_nights_evaluate_in_containers_too_unless_a_user_chose_otherwise(self, own_folder, services):
        await deploy(Wanted(own_folder, "nightly", pool="docker"))
        deployment = services.call("GET", "/deployments/name/benchmark/nightly-nightly-benchmark")
        assert deployment["parameters"] == {"deployment": "evaluate/nightly-evaluate"}
        services.call("PATCH", f"/deployments/{deployment['id']}", {"parameters": {"deployment": "evaluate/evaluate"}})
        await deploy(Wanted(own_folder, "nightly", pool="docker"))
        deployment = services.call("GET", "/deployments/name/benchmark/nightly-nightly-benchmark")
        assert deployment["parameters"] == {"deployment": "evaluate/evaluate"}

    async def test_a_pool_of_another_type_is_refused(self, own_folder, services):
        await deploy(Wanted(own_folder, "plain"))
        with pytest.raises(ServiceError, match=r"'plain-nightjar'.*'process'.*--name-prefix NAME"):
            await deploy(Wanted(own_folder, "plain", pool="docker"))
        assert pool_of(services, "plain-nightjar")["type"] == "process"


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
def engine():
    if not DockerProvider.is_available(timeout_seconds=20):
        pytest.skip("No container engine answers. Install podman (apt-get install podman) and set DOCKER_HOST")
    client = docker.from_env()
    if not client.images.list(IMAGE):
        client.close()
        pytest.skip(f"The engine has no image {IMAGE!r}. Build it: make image")
    yield client
    client.close()


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
        services.call("POST", f"/flow_runs/{flow_run}/set_state", {"state": {"type": "CANCELLING"}})
        assert services.wait_for(flow_run, "CANCELLED", "CRASHED") == "CANCELLED"
        until(lambda: not containers(), told=services.log)
        assert "rollouts of run" in services.flow_run(flow_run)["state"]["message"]
        services.retry(flow_run)
        assert services.end_of(flow_run) == "COMPLETED"
        assert server.stats().answered - 40 in range(5)  # at most the requests that the cancel interrupted
    counted = services.run("sql", "SELECT scored, avg_reward FROM runs WHERE model = 'boxed'", "--json").stdout
    assert json.loads(counted) == [{"scored": 40, "avg_reward": 1.0}]
