"""Local sandboxes: their start, the files that they show, and their errors.

Tests for all kinds of sandboxes are in tests/contracts, attacks on them in tests/durability.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import venv
from pathlib import Path

import psutil
import pytest

from nightjar.errors import ConfigError, SandboxError
from nightjar.sandboxes import (
    CommandTimeoutError,
    CreateSandboxRequest,
    DockerProvider,
    LocalProvider,
    SandboxClient,
    SandboxRefusedError,
    bubblewrap,
    choose_provider,
)
from nightjar.sandboxes.bubblewrap import find_packages
from nightjar.sandboxes.memory_limit import ControlGroup
from nightjar.sandboxes.processes import FrameReader, frame
from nightjar.sandboxes.seccomp import filter_program

needs_bubblewrap = pytest.mark.skipif(LocalProvider.problem() is not None, reason=str(LocalProvider.problem()))

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs control groups and /proc")


@pytest.fixture
def start():
    started = []

    async def start(provider=None, **limits):
        sandbox = (provider or LocalProvider()).new_sandbox(CreateSandboxRequest(**{"memory_gb": 0.25, **limits}))
        started.append(sandbox)
        await sandbox.start()
        return sandbox

    yield start
    for sandbox in started:
        sandbox.close_now()


IN_A_SANDBOX = """
import asyncio
from nightjar.sandboxes import CreateSandboxRequest, LocalProvider
async def main():
    sandbox = LocalProvider({provider}).new_sandbox(CreateSandboxRequest(memory_gb=0.25))
    await sandbox.start()
    {then}
    await asyncio.to_thread(sandbox.close_now)

asyncio.run(main())
"""


def test_a_request_has_positive_limits_little_storage_and_no_command_that_only_waits():
    assert CreateSandboxRequest(memory_gb=2, disk_size_gb=5).storage_bytes == 2**30, "half of the memory"
    assert CreateSandboxRequest(memory_gb=2, disk_size_gb=0.5).storage_bytes == 2**29
    for command in (None, "", "tail -f /dev/null", "sleep infinity"):
        assert CreateSandboxRequest(start_command=command).background_command is None
    for field in ("cpu_cores", "memory_gb", "disk_size_gb", "timeout_minutes"):
        with pytest.raises(ValueError, match=field):
            CreateSandboxRequest(**{field: 0})


def program(folder, script):
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


LOOPBACK = """
import socket
server = socket.create_server(("127.0.0.1", 8000))
socket.create_connection(("127.0.0.1", 8000)).sendall(b"hello")
print(server.accept()[0].recv(5))
"""
PACKAGES = """
import importlib.util, sympy, mpmath
print(sympy.Integer(2) ** 10, importlib.util.find_spec("pytest") is not None)
"""


@needs_bubblewrap
async def test_a_local_sandbox_has_what_programs_need_and_keeps_what_they_leave(start):
    sandbox = await start(python_packages=["sympy"], cpu_cores=1)
    for folder in ("/data", "/testbed", "/tests"):  # environments for containers write there
        await sandbox.upload(b"kept", f"{folder}/deep/file")
        command = f"cat {folder}/deep/file && echo more >> {folder}/deep/file && ls {folder}"
        assert (await sandbox.exec(command, timeout=60)).stdout == "keptdeep\n"
    version = "import sys; print(sys.version.replace(chr(10), ''))"
    for source, shown in ((LOOPBACK, "b'hello'"), (PACKAGES, "1024 False"), (version, sys.version.replace("\n", ""))):
        assert (await sandbox.exec(["python3", "-c", source], timeout=60)).stdout == f"{shown}\n"
    assert (await sandbox.exec("nproc", timeout=60)).stdout == "1\n"
    await sandbox.exec("while :; do echo noise; echo >> rounds; sleep 0.01; done & echo $! > pid", timeout=60)
    waiting = 'until [ "$(wc -l < rounds)" -ge 5 ]; do sleep 0.01; done; kill -0 $(cat pid)'
    assert (await sandbox.exec(waiting, timeout=60)).exit_code == 0


@needs_bubblewrap
async def test_a_local_sandbox_kills_a_cancelled_command_and_says_that_it_has_ended(start):
    sandbox = await start()
    running = asyncio.create_task(sandbox.exec("echo $$ > pid; exec sleep 600"))
    await sandbox.exec("until test -s pid; do sleep 0.01; done", timeout=60)
    running.cancel()
    await asyncio.wait([running], timeout=60)
    assert running.cancelled()
    assert (await sandbox.exec("kill -0 $(cat pid)", timeout=60)).exit_code != 0
    os.kill(sandbox._running.pid, signal.SIGKILL)
    sandbox._running.process.wait()
    with pytest.raises(SandboxError, match="has ended"):
        await sandbox.exec("true", timeout=10)


@needs_bubblewrap
async def test_a_local_sandbox_has_the_python_below_an_environment_of_copies(tmp_path):
    venv.create(tmp_path, symlinks=False)
    command = ["python3", "-c", "import ssl, sys; print(sys.prefix)"]
    code = IN_A_SANDBOX.format(provider="", then=f"print((await sandbox.exec({command}, timeout=60)).stdout)")
    started = await asyncio.create_subprocess_exec(
        tmp_path / "bin" / "python", "-c", code, env={"PYTHONPATH": ":".join(sys.path)}, stdout=subprocess.PIPE
    )
    said, _ = await asyncio.wait_for(started.communicate(), 120)
    assert said.decode().strip() == sys.base_prefix


@needs_bubblewrap
async def test_a_local_sandbox_that_cannot_start_says_why(start, monkeypatch, tmp_path):
    broken = program(tmp_path, "echo 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: bubblewrap.Bubblewrap(str(broken), (0, 8)))
    with pytest.raises(SandboxError, match="No permissions to create new namespace"):
        await start()


@needs_bubblewrap
async def test_a_local_sandbox_that_needs_hard_limits_has_them_or_is_refused(start):
    provider = LocalProvider(needs_hard_limits=True)
    if (group := ControlGroup.make(2**28, 64)) is None:
        with pytest.raises(SandboxRefusedError, match=r"control group.*systemd-run"):
            await start(provider)
    else:
        group.remove()
        assert isinstance((await start(provider))._running.limit, ControlGroup)


@needs_bubblewrap
def test_a_local_sandbox_is_refused_what_this_machine_does_not_have(caplog):
    missing = {"python_packages": ["no-such-thing"]}
    for wanted, named in (({"gpu_count": 1}, "no GPU"), (missing, "pip install no-such-thing")):
        with pytest.raises(SandboxRefusedError, match=named):
            LocalProvider().new_sandbox(CreateSandboxRequest(**wanted))
    assert LocalProvider().new_sandbox(CreateSandboxRequest(**missing, are_packages_optional=True))
    [warning] = caplog.records
    assert (warning.levelname, "no-such-thing" in warning.getMessage()) == ("WARNING", True)


@pytest.fixture
def no_bubblewrap(monkeypatch, tmp_path):
    monkeypatch.delenv("NIGHTJAR_ALLOW_UNISOLATED", raising=False)
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", bubblewrap.find_bubblewrap.__wrapped__)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_an_unisolated_sandbox_needs_both_the_argument_and_the_variable(no_bubblewrap, monkeypatch, tmp_path):
    for argument, variable in ((True, ""), (True, "0"), (False, "1"), (False, "")):
        monkeypatch.setenv("NIGHTJAR_ALLOW_UNISOLATED", variable)
        with pytest.raises(SandboxRefusedError, match=r"apt-get install bubblewrap.*NIGHTJAR_ALLOW_UNISOLATED=1"):
            LocalProvider(allow_unisolated=argument).new_sandbox(CreateSandboxRequest())
    program(tmp_path, "echo bubblewrap 0.4.1\n")
    with pytest.raises(SandboxRefusedError, match=r"0\.7 .*'bubblewrap 0\.4\.1'"):
        LocalProvider().new_sandbox(CreateSandboxRequest())


@needs_linux
async def test_an_unisolated_sandbox_warns_each_time_and_leaves_nothing_behind(
    no_bubblewrap, start, monkeypatch, caplog
):
    monkeypatch.setenv("NIGHTJAR_ALLOW_UNISOLATED", "1")
    provider = LocalProvider(allow_unisolated=True)
    for _ in range(2):
        sandbox = await start(provider)
    assert caplog.text.count("without any isolation") == 2
    assert (await sandbox.exec("echo $HOME; pwd", timeout=60)).stdout == f"{sandbox.workspace}\n" * 2
    await sandbox.upload(b"x", "file")
    assert await sandbox.download("file") == b"x"
    pid = int((await sandbox.exec("(setsid sleep 600 >/dev/null 2>&1 & echo $!)", timeout=60)).stdout)
    os.kill(pid, 0)
    await sandbox.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not Path(sandbox.workspace).exists()  # noqa: ASYNC240


@needs_linux
async def test_an_unisolated_sandbox_removes_what_a_killed_process_left_behind(tmp_path):
    then = "print(sandbox.workspace, flush=True); await asyncio.to_thread(input)"
    code = IN_A_SANDBOX.format(provider="allow_unisolated=True", then=then)
    env = {"PATH": str(tmp_path), "TMPDIR": str(tmp_path), "NIGHTJAR_ALLOW_UNISOLATED": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=env, **pipes)
    left = Path((await killed.stdout.readline()).decode().strip()).parent
    killed.kill()
    await killed.wait()
    os.utime(left, (0, 0))
    following = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=env, **pipes)
    await following.communicate(b"\n")
    assert list(tmp_path.glob("nightjar-*")) == []


def test_packages_of_a_distribution_include_its_dependencies_but_not_those_of_an_extra():
    found = set(find_packages(("sympy",)).paths)
    assert ({"sympy", "mpmath"} <= found, "pytest" in found) == (True, False)
    assert find_packages(("no-such-thing", "sympy>=999", "==")).missing == ["==", "sympy>=999", "no-such-thing"]


def test_packages_without_code_need_that_of_others_and_code_elsewhere_is_missing(tmp_path, monkeypatch):
    def install(name, *requires, module=None):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\nProvides-Extra: more\n{needs}")
        files = [f"{folder.name}/METADATA", *([module] if module else [])]
        (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        if module:
            (tmp_path / module).touch()

    monkeypatch.syspath_prepend(tmp_path)
    find_packages.cache_clear()
    install("whole", "slim[more]==1.0")
    install("slim", 'extra_part; extra == "more"', module="slim.py")
    install("extra_part", module="extra_part.py")
    install("linked", module="linked.pth")
    found = find_packages(("slim", "whole"))
    assert (found.missing, {"slim.py", "extra_part.py"} <= set(found.paths)) == ([], True)
    assert find_packages(("linked",)).missing == ["linked"]
    find_packages.cache_clear()


class Machine:
    """Runs a filter program as the kernel does, by ``linux/filter.h``."""

    def __init__(self, program, architecture=0xC000003E):
        self.steps = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
        self.architecture = architecture

    def call(self, number, *arguments):
        data = struct.pack("=IIQ6Q", number, self.architecture, 0, *arguments, *[0] * (6 - len(arguments)))
        at, held = 0, 0
        while True:
            code, if_true, if_false, value = self.steps[at]
            at += 1
            match code:
                case 0x06:
                    return value
                case 0x20:
                    held = struct.unpack_from("=I", data, value)[0]
                case 0x54:
                    held &= value
                case _:
                    holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
                    at += if_true if holds else if_false


ALLOWED = 0x7FFF0000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "read": (0, 63), "clone": (56, 220), "unshare": (272, 97), "mount": (165, 40), "socket": (41, 198),
    "memfd_create": (319, 279), "clone3": (435, 435), "prlimit64": (302, 261), "setpriority": (141, 140),
    "mmap": (9, 222), "fcntl": (72, 25), "setsockopt": (54, 208), "semget": (64, 190),
}  # fmt: skip
"""The numbers of calls on each architecture."""
EPERM, ENOSYS, EAFNOSUPPORT = (0x00050000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))
SHARED, PRIVATE, ANONYMOUS = 1, 2, 0x20
FORK, THREAD = 0x01200011, 0x003D0F00
ANSWERS = [
    ("read", (), ALLOWED), ("clone", (FORK,), ALLOWED), ("clone", (THREAD,), ALLOWED),
    *(("socket", (family,), ALLOWED) for family in (1, 2, 10, 16)),
    *(("mmap", (0, 9, 3, flags), ALLOWED) for flags in (PRIVATE | ANONYMOUS, SHARED, PRIVATE)),
    ("mmap", (0, 9, 3, SHARED | ANONYMOUS), EPERM), ("fcntl", (3, 4), ALLOWED), ("fcntl", (3, 1031), EPERM),
    ("setsockopt", (3, 1, 2), ALLOWED), ("setsockopt", (3, 0, 8), ALLOWED), ("setsockopt", (3, 1, 7), EPERM),
    ("prlimit64", (0,), ALLOWED), ("prlimit64", (1,), EPERM), ("setpriority", (1, 0), ALLOWED),
    ("setpriority", (1, 1), EPERM), ("unshare", (0x10000000,), EPERM), ("clone", (0x10000011,), EPERM),
    ("clone", (0x00020011,), EPERM), ("clone3", (0,), ENOSYS), ("mount", (0,), EPERM),
    ("socket", (40,), EAFNOSUPPORT), ("socket", (38,), EAFNOSUPPORT), ("memfd_create", (0,), ENOSYS),
    ("semget", (0,), ENOSYS),
]  # fmt: skip


def test_the_filter_of_system_calls_allows_ordinary_calls_and_refuses_others():
    for position, (architecture, number) in enumerate(ARCHITECTURES.items()):
        machine = Machine(filter_program(architecture), number)
        found = [(name, given, machine.call(NUMBERS[name][position], *given)) for name, given, _ in ANSWERS]
        assert found == ANSWERS, architecture
    assert Machine(filter_program("x86_64"), architecture=0x40000003).call(0) == 0x80000000, "the caller is killed"
    assert filter_program("vax") is None


def frames(data, at_once=7):
    pieces = [data[at : at + at_once] for at in range(0, len(data), at_once)]

    async def receive(size):
        if not pieces:
            return b""
        piece = pieces.pop(0)
        if len(piece) > size:
            pieces.insert(0, piece[size:])
        return piece[:size]

    return FrameReader(receive, {1, 2})


async def test_frames_are_split_however_they_arrive():
    reader = frames(frame(1, b"hello") + frame(2, b"") + frame(2, b"world"))
    found = {1: b"", 2: b""}
    while piece := await reader.read():
        found[piece[0]] += piece[1]
    assert found == {1: b"hello", 2: b"world"}
    assert await frames(b"\x01\0\0").read() is None, "the end within a header is the end"


async def test_frames_of_another_shape_are_an_error_and_announced_bytes_are_not_waited_for():
    for data in (b"\x03\0\0\0\0\0\0\x01x", b"\x01\x01\0\0\0\0\0\x01x", b"HTTP/1.1"):
        with pytest.raises(SandboxError, match="violated the protocol"):
            await frames(data).read()
    reader = frames(b"\x01\0\0\0\xff\xff\xff\xff" + b"abc", at_once=100)
    assert await reader.read() == (1, b"abc")
    assert await reader.read() is None


@needs_linux
def test_control_groups_carry_the_limits_and_count_kills_unless_limits_are_not_delegated(tmp_path):
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    (tmp_path / own).mkdir(parents=True, exist_ok=True)
    delegated = ((tmp_path / own).parent if own else tmp_path) / "cgroup.subtree_control"
    delegated.write_text("cpu memory pids\n")
    group = ControlGroup.make(2**28, 64, tmp_path)
    written = {path.name: path.read_text() for path in group.path.iterdir()}
    assert written == {"memory.max": str(2**28), "pids.max": "80", "memory.swap.max": "0"}
    assert group.add(os.getpid())
    assert (group.path / "cgroup.procs").read_text() == str(os.getpid())
    assert group.kills == 0
    (group.path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\n")
    assert group.kills == 3
    delegated.write_text("cpu\n")
    assert ControlGroup.make(2**28, 64, tmp_path) is None
    assert ControlGroup.make(2**28, 64, tmp_path / "nowhere") is None


def test_the_provider_is_the_given_or_named_one_and_unknown_names_are_refused(monkeypatch):
    provider = LocalProvider()
    assert choose_provider(provider) is provider
    monkeypatch.setenv("NIGHTJAR_SANDBOX", "local")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    assert choose_provider().name == "local"
    for choose, chosen in itertools.product((choose_provider, SandboxClient), ("vm", "Docker")):
        with pytest.raises(ConfigError, match=f"'{chosen}'.*docker, local, podman"):
            choose(chosen)


def test_a_daemon_that_does_not_answer_is_not_chosen_and_one_that_hangs_is_not_waited_for(monkeypatch, tmp_path):
    monkeypatch.delenv("NIGHTJAR_SANDBOX", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    assert choose_provider().name == "local"
    assert not DockerProvider.is_available()
    with pytest.raises(SandboxRefusedError, match="No docker daemon answers"):
        choose_provider("docker")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "docker.sock"))
        server.listen()
        started = time.monotonic()
        assert not DockerProvider.is_available()
    assert time.monotonic() - started < 50, "the SDK's own limit is 60 s"


@pytest.fixture
def client():
    client = SandboxClient("local")
    yield client
    client.teardown()


@needs_bubblewrap
async def test_a_client_runs_commands_copies_files_and_runs_jobs_in_the_background(client, tmp_path):
    created = await client.create(CreateSandboxRequest(name="early"))  # returns before the sandbox has started
    box = created.id
    assert box.startswith("early-")
    await client.wait_for_creation(box)
    assert (await client.execute_command(box, "echo hi", timeout=60)).stdout == "hi\n"
    with pytest.raises(CommandTimeoutError, match=r"'sleep 600' timed out after 0\.2s"):
        await client.execute_command(box, "sleep 600", timeout=0.2)
    (tmp_path / "in.txt").write_text("content")
    await client.upload_file(box, "/workspace/a.txt", str(tmp_path / "in.txt"))
    await client.upload_bytes(box, "/workspace/b.txt", b"bytes", "b.txt")
    await client.download_file(box, "/workspace/a.txt", str(tmp_path / "out.txt"))
    assert (tmp_path / "out.txt").read_text() == "content"
    assert (await client.read_file(box, "/workspace/b.txt")).content == "bytes"
    job = await client.start_background_job(box, "until test -f go; do sleep 0.02; done; echo done; exit 2")
    assert not (await client.get_background_job(box, job)).completed
    await client.upload_bytes(box, "go", b"")
    async with asyncio.timeout(120):
        while not (status := await client.get_background_job(box, job)).completed:
            await client.execute_command(box, "sleep 0.02", timeout=60)
    assert (status.stdout, status.exit_code) == ("done\n", 2)
    assert (await client.run_background_job(box, "echo now")).stdout == "now\n"


@needs_bubblewrap
async def test_a_client_deletes_by_id_and_by_label(client):
    kept, red, blue = [
        await client.create(CreateSandboxRequest(labels=labels)) for labels in ([], ["red", "all"], ["blue", "all"])
    ]
    await client.delete(red.id)
    await client.delete(red.id)
    await client.bulk_delete(labels=["all"])
    assert (await client.execute_command(kept.id, "echo kept", timeout=60)).stdout == "kept\n"
    for gone in (red, blue):
        with pytest.raises(SandboxError, match=f"no sandbox '{gone.id}'"):
            await client.execute_command(gone.id, "true", timeout=10)


@needs_bubblewrap
async def test_a_client_deletes_a_sandbox_that_is_still_starting(client):
    memory_gb = 0.25 + os.getpid() * 2**-22
    for attempt in range(20):
        created = await client.create(CreateSandboxRequest(memory_gb=memory_gb))
        await asyncio.sleep(attempt * 0.0006)
        await client.delete(created.id)
    workspace_bytes = str(int(CreateSandboxRequest(memory_gb=memory_gb).storage_bytes * 0.5625))
    left = [one for one in psutil.process_iter(["cmdline"]) if workspace_bytes in (one.info["cmdline"] or [])]
    assert left == []


@needs_bubblewrap
async def test_a_client_ends_a_sandbox_when_its_time_is_over(client):
    created = await client.create(CreateSandboxRequest(timeout_minutes=1 / 60))
    with contextlib.suppress(SandboxError):  # on a busy machine it may not even start in time
        await client.execute_command(created.id, "sleep 600")
    with pytest.raises(SandboxError, match="timeout_minutes"):
        await client.execute_command(created.id, "true", timeout=10)


@needs_bubblewrap
def test_a_client_retries_the_start_and_is_torn_down_after_its_event_loop_has_ended():
    attempts = []

    def with_retry(func):
        async def retried():
            attempts.append(1)
            await func()

        return retried

    client = SandboxClient("local", with_retry=with_retry)

    async def begin():
        created = await client.create(CreateSandboxRequest())
        await client.wait_for_creation(created.id)
        return await client.get(created.id)

    process = asyncio.run(begin())._running.process
    client.teardown()
    assert process.poll() is not None
    assert attempts == [1]
