"""Containers as sandboxes: requests to the daemon, and its errors.

The daemon is ``tests/contracts/docker_engine.py``, which speaks Docker's API over a real socket.
"""

import asyncio
import re
import runpy
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest
from waiting import until

from nightjar.errors import SandboxError
from nightjar.sandboxes import CreateSandboxRequest, DockerProvider, SandboxClient, SandboxCreationError

ENGINE = Path(__file__).parents[1] / "contracts" / "docker_engine.py"
IMAGE = "python:3.11-slim"


@pytest.fixture
def start_engine(tmp_path, monkeypatch):
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with ExitStack() as engines:
        make = runpy.run_path(str(ENGINE))["Engine"]
        yield lambda: engines.enter_context(closing(make(tmp_path / "docker.sock", images=[IMAGE])))


@pytest.fixture
def engine(start_engine):
    return start_engine()


@pytest.fixture
def provider(engine):
    provider = DockerProvider()
    yield provider
    provider.close()


@pytest.fixture
async def start(provider):
    started = []

    async def start(**limits):
        sandbox = provider.new_sandbox(CreateSandboxRequest(**limits))
        started.append(sandbox)
        await sandbox.start()
        return sandbox

    yield start
    for sandbox in started:
        await sandbox.close()


def asked(engine, method, pattern):
    return [body for known, path, body in engine.requests if known == method and re.fullmatch(pattern, path)]


def watchers():
    children = psutil.Process().children()
    return [each for each in children if "nightjar.sandboxes.removal" in " ".join(each.cmdline())]


async def test_a_container_has_limits_and_no_more_rights(engine, start):
    await start(
        memory_gb=1, disk_size_gb=0.25, cpu_cores=2, max_processes=100, timeout_minutes=5, gpu_count=1,
        labels=["experiment-7"],
    )  # fmt: skip
    [config] = asked(engine, "POST", "/containers/create")
    host = config["HostConfig"]
    assert config | {
        "Image": IMAGE, "Cmd": ["/bin/sh", "-c", "exec sleep 300"], "NetworkDisabled": True, "User": "65534:65534",
    } == config  # fmt: skip
    assert host | {
        "NetworkMode": "none", "Memory": 2**30, "MemorySwap": 2**30, "NanoCpus": 2 * 10**9, "PidsLimit": 132,
        "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "ReadonlyRootfs": True, "AutoRemove": True,
    } == host  # fmt: skip
    sizes = {path: int(re.search(r"size=(\d+)", options)[1]) for path, options in host["Tmpfs"].items()}
    assert set(sizes) == {"/workspace", "/tmp"}
    assert sum(sizes.values()) == 2**28
    assert {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]} == {"nofile": 1024, "nproc": 100, "core": 0}
    assert not host.get("Binds")
    assert not config.get("Env")
    assert host["DeviceRequests"][0]["Count"] == 1
    assert config["Labels"]["nightjar"] == "sandbox"
    assert "experiment-7" in config["Labels"]


async def test_the_start_command_runs_and_each_command_has_an_ordinary_user_and_its_own_group(engine, start):
    sandbox = await start(start_command="echo up > status")
    waiting = "until test -s status; do sleep 0.02; done; cat status"
    for command, shown in ((waiting, "up\n"), ("true", "")):
        assert (await sandbox.exec(command, timeout=60)).stdout == shown
    root, *users = [config["User"] for config in asked(engine, "POST", r"/containers/\w+/exec")]
    (first, first_group), (second, second_group) = (user.split(":") for user in users[-2:])
    assert (root, first) == ("0:0", second)  # root opens the workspace
    assert int(first) >= 10_000
    assert first_group != second_group


async def test_a_missing_image_is_pulled_once(engine, start):
    await asyncio.gather(*(start(docker_image="debian:12") for _ in range(3)))
    assert len(asked(engine, "POST", "/images/create")) == 1


async def test_an_image_that_cannot_be_pulled_is_named(start):
    with pytest.raises(SandboxCreationError, match="'nowhere:1' cannot be pulled: pull access denied"):
        await start(docker_image="nowhere:1")


async def test_packages_are_installed_once_and_a_failed_installation_is_an_error(engine, start):
    engine.faults.append(("POST", "/build", 500, "no network"))
    with pytest.raises(SandboxCreationError, match=r"no network.*Set docker_image to an image"):
        await start(python_packages=["pandas"])
    for _ in range(2):
        await start(python_packages=["numpy", "scipy>=1"])
    assert len(asked(engine, "POST", "/build")) == 2
    first, second = [config["Image"] for config in asked(engine, "POST", "/containers/create")]
    assert first == second
    assert first.startswith("nightjar-packages:")
    assert engine.built[first] == ["nightjar=image"]  # so that 'sandbox prune --images' finds it


async def test_a_container_starts_when_a_restarted_engine_answers_again(start_engine, engine, provider, tmp_path):
    engine.close()
    (tmp_path / "docker.sock").unlink()
    sandbox = provider.new_sandbox(CreateSandboxRequest())
    starting = asyncio.create_task(sandbox.start())
    await asyncio.sleep(0.2)  # for a first attempt, without which the test passes as well
    start_engine()
    await starting
    await sandbox.close()


async def test_a_container_that_stays_is_left_to_the_watcher(engine, provider):
    import docker

    sandbox = provider.new_sandbox(CreateSandboxRequest())
    await sandbox.start()
    engine.faults.append(("DELETE", r"/containers/\w+", 500, "the disk is full"))
    with pytest.raises(docker.errors.APIError, match="the disk is full"):
        await sandbox.close()
    provider.close()
    assert len(watchers()) == 1
    provider.open_containers.clear()
    provider.close()
    assert watchers() == []


async def test_a_failed_start_leaves_no_container(engine, start):
    engine.faults.append(("POST", r"/containers/\w+/start", 500, "no space left"))
    with pytest.raises(SandboxCreationError, match=r"did not start.*no space left"):
        await start()
    assert engine.containers == {}


@pytest.mark.parametrize(("fault", "match"), [
    (("POST", r"/containers/\w+/exec", 409, "container is not running"), "not running"),
    (("GET", r"/exec/\w+/json", 404, "no such exec"), "ended.*no such exec"),
])  # fmt: skip
async def test_a_command_in_an_ended_container_is_an_error_and_its_removal_is_none(engine, start, fault, match):
    sandbox = await start()
    engine.faults.append(fault)
    with pytest.raises(SandboxError, match=match):
        await sandbox.exec("true", timeout=10)
    engine.containers.clear()
    await sandbox.close()


async def test_a_container_that_is_deleted_while_it_starts_is_removed(engine):
    client = SandboxClient("docker")
    engine.may_create.clear()
    created = await client.create(CreateSandboxRequest())
    await asyncio.to_thread(until, lambda: asked(engine, "POST", "/containers/create"))
    await client.delete(created.id)
    engine.may_create.set()
    await asyncio.to_thread(until, lambda: asked(engine, "DELETE", r"/containers/\w+"))
    await asyncio.to_thread(until, lambda: not engine.containers)
    assert asked(engine, "POST", r"/containers/\w+/start") == []
    client.teardown()


async def test_all_are_removed_at_the_end(engine):
    client = SandboxClient("docker")
    created = [await client.create(CreateSandboxRequest()) for _ in range(3)]
    await asyncio.gather(*(client.wait_for_creation(one.id) for one in created))
    assert len(engine.containers) == 3
    await asyncio.to_thread(client.teardown)
    assert engine.containers == {}


class Wrapped:
    """A connection that is not a plain socket, such as TLS or SSH: it has only blocking calls."""

    def __init__(self, connection):
        self.recv, self.sendall, self.close = connection.recv, connection.sendall, connection.close


async def test_connections_other_than_plain_sockets_are_read_in_threads(start, provider, monkeypatch):
    sandbox = await start()
    exec_start = provider.api.exec_start

    def wrapped(*args, **options):
        connection = exec_start(*args, **options)
        return Wrapped(connection._sock) if options.get("socket") else connection

    monkeypatch.setattr(provider.api, "exec_start", wrapped)
    result = await sandbox.exec("head -c 5; echo done >&2; exit 4", timeout=10, stdin=b"given")
    assert (result.stdout, result.stderr, result.exit_code) == ("given", "done\n", 4)


async def test_podman_has_the_same_protocol(engine):
    client = SandboxClient("podman")
    created = await client.create(CreateSandboxRequest())
    assert (await client.execute_command(created.id, "echo hi", timeout=10)).stdout == "hi\n"
    await client.delete(created.id)
    client.teardown()
