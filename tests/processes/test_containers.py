"""Containers as sandboxes: what the daemon is asked for, and what becomes of its refusals.

The daemon is ``tests/contracts/docker_engine.py``, which speaks Docker's API over a real socket.
"""

import asyncio
import re
import runpy
from pathlib import Path

import pytest

from nightjar.errors import SandboxError
from nightjar.sandboxes import CreateSandboxRequest, DockerProvider, SandboxClient, SandboxCreationError
from nightjar.sandboxes.containers import ContainerProcess

docker = pytest.importorskip("docker")
Engine = runpy.run_path(str(Path(__file__).parents[1] / "contracts" / "docker_engine.py"))["Engine"]
IMAGE = "python:3.11-slim"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    engine = Engine(tmp_path / "docker.sock", images=[IMAGE])
    yield engine
    engine.close()


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


class TestWhatIsAskedFor:
    async def test_is_a_container_with_limits_and_nothing_else(self, engine, start):
        await start(memory_gb=1, disk_size_gb=0.25, cpu_cores=2, max_processes=100, timeout_minutes=5)
        [config] = asked(engine, "POST", "/containers/create")
        host = config["HostConfig"]
        assert config["Image"] == IMAGE
        assert config["Cmd"] == ["/bin/sh", "-c", "exec sleep 300"]
        assert config["NetworkDisabled"]
        assert config["User"] == "65534:65534"
        assert host["NetworkMode"] == "none"
        assert host["Memory"] == host["MemorySwap"] == 2**30
        assert host["NanoCpus"] == 2 * 10**9
        assert host["PidsLimit"] == 132
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["ReadonlyRootfs"]
        assert host["AutoRemove"]
        sizes = {path: int(re.search(r"size=(\d+)", options)[1]) for path, options in host["Tmpfs"].items()}
        assert set(sizes) == {"/workspace", "/tmp"}
        assert sum(sizes.values()) == 2**28
        assert {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]} == {"nofile": 1024, "nproc": 100, "core": 0}
        assert not host.get("Binds")
        assert not config.get("Env")

    async def test_has_labels_to_be_found_by(self, engine, start):
        await start(labels=["experiment-7"])
        [config] = asked(engine, "POST", "/containers/create")
        assert config["Labels"]["nightjar"] == "sandbox"
        assert "experiment-7" in config["Labels"]

    async def test_is_a_gpu_where_one_is_wanted(self, engine, start):
        await start(gpu_count=1)
        [config] = asked(engine, "POST", "/containers/create")
        assert config["HostConfig"]["DeviceRequests"][0]["Count"] == 1

    async def test_is_an_ordinary_user_and_a_group_for_each_command(self, engine, start):
        sandbox = await start()
        for _ in range(2):
            await sandbox.exec("true", timeout=10)
        users = [config["User"] for config in asked(engine, "POST", r"/containers/\w+/exec")]
        assert users[0] == "0:0"  # opens the workspace
        (first, first_group), (second, second_group) = (user.split(":") for user in users[1:])
        assert first == second
        assert int(first) >= 10_000
        assert first_group != second_group

    async def test_is_the_start_command(self, engine, start):
        sandbox = await start(start_command="echo up > status")
        for _ in range(100):
            if (found := await sandbox.exec("cat status", timeout=10)).exit_code == 0:
                break
            await asyncio.sleep(0.02)
        assert found.stdout == "up\n"


class TestImages:
    async def test_are_pulled_when_they_are_not_there(self, engine, start):
        await start(docker_image="debian:12")
        assert len(asked(engine, "POST", "/images/create")) == 1

    async def test_are_pulled_once(self, engine, start):
        await asyncio.gather(*(start(docker_image="debian:12") for _ in range(3)))
        assert len(asked(engine, "POST", "/images/create")) == 1

    async def test_that_cannot_be_pulled_are_named(self, start):
        with pytest.raises(SandboxCreationError, match="'nowhere:1' cannot be pulled: pull access denied"):
            await start(docker_image="nowhere:1")

    async def test_get_packages_installed_once(self, engine, start):
        await start(python_packages=["numpy", "scipy>=1"])
        await start(python_packages=["numpy", "scipy>=1"])
        assert len(asked(engine, "POST", "/build")) == 1
        images = [config["Image"] for config in asked(engine, "POST", "/containers/create")]
        assert images[0] == images[1]
        assert images[0].startswith("nightjar-packages:")

    async def test_that_cannot_get_packages_say_what_to_do(self, engine, start):
        engine.faults.append(("POST", "/build", 500, "no network"))
        with pytest.raises(SandboxCreationError, match=r"no network.*Set docker_image to an image"):
            await start(python_packages=["numpy"])


class TestFailures:
    async def test_at_the_start_are_told_and_leave_no_container(self, engine, start):
        engine.faults.append(("POST", r"/containers/\w+/start", 500, "no space left"))
        with pytest.raises(SandboxCreationError, match=r"did not start.*no space left"):
            await start()
        assert engine.containers == {}

    async def test_of_a_command_are_told(self, engine, start):
        sandbox = await start()
        engine.faults.append(("POST", r"/containers/\w+/exec", 409, "container is not running"))
        with pytest.raises(SandboxError, match=r"cannot run commands.*not running"):
            await sandbox.exec("true", timeout=10)

    async def test_to_say_the_exit_code_are_told(self, engine, start):
        sandbox = await start()
        engine.faults.append(("GET", r"/exec/\w+/json", 404, "no such exec"))
        with pytest.raises(SandboxError, match=r"container has ended.*no such exec"):
            await sandbox.exec("true", timeout=10)

    async def test_to_remove_what_is_gone_are_none(self, engine, start):
        sandbox = await start()
        engine.containers.clear()
        await sandbox.close()

    async def test_a_container_that_is_deleted_while_it_starts_does_not_stay(self, engine):
        client = SandboxClient("docker")
        created = await client.create(CreateSandboxRequest())
        await client.delete(created.id)
        for _ in range(100):
            if not engine.containers:
                break
            await asyncio.sleep(0.02)
        assert engine.containers == {}
        client.teardown()

    async def test_all_are_removed_at_the_end(self, engine):
        client = SandboxClient("docker")
        created = [await client.create(CreateSandboxRequest()) for _ in range(3)]
        await asyncio.gather(*(client.wait_for_creation(one.id) for one in created))
        assert len(engine.containers) == 3
        await asyncio.to_thread(client.teardown)
        assert engine.containers == {}


class Wrapped:
    """A connection that is no plain socket, as one over TLS or SSH: it can only be asked and waited for."""

    def __init__(self, connection):
        self._connection = connection

    def recv(self, size):
        return self._connection.recv(size)

    def sendall(self, data):
        return self._connection.sendall(data)

    def close(self):
        self._connection.close()


async def test_connections_that_are_no_plain_sockets_are_read_in_threads(start, provider, monkeypatch):
    sandbox = await start()
    exec_start = provider.api.exec_start

    def wrapped(*args, **options):
        connection = exec_start(*args, **options)
        return Wrapped(connection._sock) if options.get("socket") else connection

    monkeypatch.setattr(provider.api, "exec_start", wrapped)
    result = await sandbox.exec("head -c 5; echo done >&2; exit 4", timeout=10, stdin=b"given")
    assert (result.stdout, result.stderr, result.exit_code) == ("given", "done\n", 4)


async def test_a_podman_is_a_docker(engine):
    client = SandboxClient("podman")
    created = await client.create(CreateSandboxRequest())
    assert (await client.execute_command(created.id, "echo hi", timeout=10)).stdout == "hi\n"
    await client.delete(created.id)
    client.teardown()


def test_a_process_knows_plain_sockets_from_others():
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ContainerProcess(ours, dict, asyncio.sleep, asyncio.to_thread)._is_plain
        assert not ContainerProcess(Wrapped(ours), dict, asyncio.sleep, asyncio.to_thread)._is_plain
