"""Attacks from inside a sandbox, all of which must fail. Each is really made, bounded in time and size.

Local sandboxes are attacked where bubblewrap is installed; containers where ``NIGHTJAR_TEST_IMAGE`` names an image with
bash and Python that the docker daemon at ``DOCKER_HOST`` has.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from waiting import until

from nightjar.clients import ClientConfig
from nightjar.environments.rubrics import Rubric
from nightjar.environments.tools.python_env import PythonEnv
from nightjar.environments.tools.sandbox_env import SandboxEnv
from nightjar.errors import SandboxError
from nightjar.model_server import ModelServer, Script, last_user_text, tool_call
from nightjar.sandboxes import CreateSandboxRequest, DockerProvider, LocalProvider, bubblewrap
from nightjar.sandboxes.bubblewrap import STORAGE
from nightjar.sandboxes.python_repl import PythonEndedError, PythonRepl

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")

SECRET = "sk-this-must-stay-outside"
IMAGE = os.environ.get("NIGHTJAR_TEST_IMAGE")
MEGABYTE = 2**20
MAX_GROWTH_MB = 40
LIMITS = {"docker_image": IMAGE or "any", "memory_gb": 0.25}


@pytest.fixture(params=["local", *(["docker"] if IMAGE else [])])
def provider(request):
    if request.param == "local" and (problem := LocalProvider.problem()):
        pytest.skip(problem)
    provider = LocalProvider() if request.param == "local" else DockerProvider()
    yield provider
    provider.close()


@pytest.fixture
async def sandbox(provider, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    sandbox = provider.new_sandbox(CreateSandboxRequest(name="attack", max_processes=64, **LIMITS))
    await sandbox.start()
    yield sandbox
    await sandbox.close()


@pytest.fixture
def only_local(provider):
    if provider.name != "local":
        pytest.skip("looks at what only a local sandbox has, or at its processes from outside")


@pytest.fixture
async def repl(sandbox):
    repl = PythonRepl(sandbox)
    await repl.start(60)
    yield repl
    await repl.close()


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "key.txt"
    path.write_text(SECRET)
    return path


async def run(sandbox, command, seconds=60):
    return await sandbox.exec(command, timeout=seconds)


async def out(sandbox, command):
    return (await run(sandbox, command)).stdout


async def python(sandbox, code, seconds=60):
    return await sandbox.exec(["python3", "-c", textwrap.dedent(code)], timeout=seconds)


async def still_works(sandbox):
    return await out(sandbox, "echo fine") == "fine\n"


async def growth_while(awaitable):
    """Returns the result of an awaitable, and by how many megabytes this process grew meanwhile at most."""
    process, task = psutil.Process(), asyncio.ensure_future(awaitable)
    before = highest = process.memory_info().rss
    while not task.done():
        highest = max(highest, process.memory_info().rss)
        await asyncio.sleep(0.005)
    return task.result(), (highest - before) / MEGABYTE


def processes_with(word):
    return [process.pid for process in psutil.process_iter(["cmdline"]) if word in (process.info["cmdline"] or [])]


def unlikely_number():
    return f"6{os.getpid()}{time.time_ns() % 10**6}"


HOARDS_START = """
import ctypes, mmap, os, socket, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
held = []
"""
FILL = """
    end.setblocking(False)
    try:
        for _ in range({times}):
            end.send(bytes(65536))
    except BlockingIOError:
        pass
"""
HOARDS = {
    "shared": """
for file in [-1, os.open('/dev/zero', os.O_RDWR)] * 6:
    held.append(mmap.mmap(file, 32 * 2**20))
    for page in range(0, len(held[-1]), 4096):
        held[-1][page] = 1
    held[-1].madvise(mmap.MADV_DONTNEED)
""",
    "semaphores": """
for _ in range(180):
    assert libc.semget(0, 32000, 0o1600) >= 0
""",
    "page tables": """
for _ in range(200):
    start = libc.mmap(None, ctypes.c_size_t(2**30), 1, 0x4022, -1, ctypes.c_long(0))
    for page in range(start, start + 2**30, 2**21):
        ctypes.c_char.from_address(page).value
""",
    "read-only": """
for _ in range(12):
    start = libc.mmap(None, ctypes.c_size_t(2**25), 3, 0x22, -1, ctypes.c_long(0))
    ctypes.memset(start, 1, 2**25)
    libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(2**25), 1)
""",
    "pipes": """
for _ in range(50):
    if not os.fork():
        break
for _ in range(500):
    writer = os.pipe()[1]
    os.set_blocking(writer, False)
    try:
        while os.write(writer, bytes(65536)):
            pass
    except BlockingIOError:
        pass
""",
    "sockets": f"""
for _ in range(480):
    held.append(socket.socketpair())
for end in [end for pair in held for end in pair]:
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
    except PermissionError:
        pass
{FILL.format(times=10)}
""",
    "connections": f"""
server = socket.create_server(("::1", 0), family=socket.AF_INET6)
for _ in range(100):
    held.append(socket.create_connection(server.getsockname()[:2]))
    end = server.accept()[0]
    held.append(end)
{FILL.format(times=64)}
""",
}
"""Ways to hold about 400 MB of memory that no process seems to have."""


COUNT_PROCESSES = "set -- /proc/[0-9]*; echo $#"
ATTACKS = {
    "forks": "bomb() { bomb | bomb & }; bomb; sleep 60",
    "memory": "python3 -c 'x = [bytearray(10**7) for _ in range(200)]'", "output": "yes", "kill": "kill -9 -1",
}  # fmt: skip


async def test_processes_are_limited_and_a_fork_bomb_ends_with_its_time(sandbox):
    assert (await run(sandbox, ATTACKS["forks"], seconds=1)).is_timed_out
    assert int(await out(sandbox, COUNT_PROCESSES)) < 10
    code = """
        import os, signal, time
        children = []
        try:
            while len(children) < 500:
                child = os.fork()
                if not child:
                    time.sleep(30)
                    os._exit(0)
                children.append(child)
        except OSError:
            pass
        for child in children:
            os.kill(child, signal.SIGKILL)
        print(len(children))
    """
    assert 10 < int((await python(sandbox, code)).stdout) <= 64


async def test_memory_of_one_and_of_many_processes_is_limited_and_the_model_is_told(sandbox, provider):
    result = await python(sandbox, "x = bytearray(10**9); print('got it')")
    assert (result.stdout, result.exit_code != 0) == ("", True)
    assert await still_works(sandbox)
    code = "import os, time; [os.fork() for _ in range(4)]; x = bytearray(40 * 2**20); time.sleep(20)"
    result = await python(sandbox, code)
    assert result.exit_code == 137
    assert provider.name != "local" or "more than 0.25 GB" in result.stderr
    assert await still_works(sandbox)


@pytest.mark.parametrize("hold", HOARDS.values(), ids=HOARDS)
async def test_memory_cannot_be_hidden(sandbox, only_local, hold):
    # on a busy machine the watch is late
    result = await python(sandbox, f"{HOARDS_START}{hold}\ntime.sleep(10); print('got it')", seconds=60)
    assert result.stdout == ""
    assert await still_works(sandbox)


@pytest.mark.long
async def test_a_sandbox_full_of_files_is_restarted(sandbox, only_local):
    said = ""
    for attempt in range(20):
        code = f"""
            import os
            for number in range(10**6):
                os.close(os.open(f"./{attempt}-{{number}}", os.O_CREAT))
        """
        said += (await python(sandbox, code, seconds=30)).stderr
        if "restarted" in said:
            break
        await asyncio.sleep(1)
    assert "restarted without its files" in said
    assert await out(sandbox, "ls") == ""
    assert await still_works(sandbox)


async def test_disks_are_limited_and_nothing_else_can_be_written(sandbox):
    fill = "head -c 1000000000 /dev/zero > $place/big; wc -c < $place/big"
    places = " ".join(STORAGE)
    filled = await out(sandbox, f"for place in {places}; do {fill}; done 2>/dev/null")
    await run(sandbox, f"for place in {places}; do rm -f $place/big; done")
    assert 0 < sum(map(int, filled.split())) < 256 * MEGABYTE
    assert await still_works(sandbox)
    places = "/ /dev /etc /usr /opt /proc /sys /bin"
    assert await out(sandbox, f"for place in {places}; do touch $place/x 2>/dev/null && echo $place; done") == ""


async def test_much_output_is_not_held_and_endless_output_ends_with_its_time(sandbox):
    result, grown = await growth_while(run(sandbox, "yes | head -c 300000000", seconds=60))
    assert (result.is_truncated, len(result.stdout) < 1_100_000, grown < MAX_GROWTH_MB) == (True, True, True)
    result, grown = await growth_while(run(sandbox, "yes & yes >&2", seconds=1))
    assert (result.is_timed_out, grown < MAX_GROWTH_MB, await still_works(sandbox)) == (True, True, True)


DAEMON = """
import os, time
if os.fork():
    time.sleep(60)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 20)
time.sleep(61)
"""


STUBBORN = {
    "ignores signals": "trap '' TERM INT HUP; while :; do sleep 60; done",
    "other session": "setsid sleep 61 & sleep 60",
    "orphan": "(setsid nohup sleep 61 >/dev/null 2>&1 &) ; sleep 60",
    "daemon": f"exec python3 -c '{DAEMON}'",
    "closes its output": "exec 1>&- 2>&-; sleep 60",
    "stops itself": "kill -STOP $$; sleep 60",
}


@pytest.mark.long
async def test_the_time_limit_ends_all_that_a_command_started(sandbox):
    before = await out(sandbox, COUNT_PROCESSES)
    for name, command in STUBBORN.items():
        async with asyncio.timeout(50):
            assert (await run(sandbox, command, seconds=0.7)).is_timed_out, name
        assert await out(sandbox, COUNT_PROCESSES) == before, name


async def test_a_sandbox_survives_a_command_that_kills_or_stops_its_watcher_and_no_daemon_survives_its_end(
    sandbox, provider
):
    assert (await run(sandbox, "sleep 63 & kill -9 -1; sleep 60", seconds=5)).exit_code in {137, None}
    assert await still_works(sandbox)
    stops = ("kill -STOP $PPID", "while :; do kill -STOP $PPID; kill -CONT $PPID; done")
    for signals in stops if provider.name == "local" else ():
        mark = unlikely_number()
        async with asyncio.timeout(50):
            await run(sandbox, f"sleep {mark} & {signals}; sleep {mark}", seconds=1)
        assert await still_works(sandbox)
        assert not processes_with(mark)
    if provider.name == "local":
        mark = unlikely_number()
        await run(sandbox, f"(setsid nohup sleep {mark} >/dev/null 2>&1 &)")
        assert processes_with(mark)
        await sandbox.close()
        assert not processes_with(mark)


def test_nothing_survives_a_process_with_a_sandbox_that_is_killed(fork, only_local):
    mark = unlikely_number()
    script = f"""
        import asyncio
        from nightjar.sandboxes import CreateSandboxRequest, LocalProvider
        async def main():
            sandbox = LocalProvider().new_sandbox(CreateSandboxRequest())
            await sandbox.start()
            await sandbox.exec("(setsid nohup sleep {mark} >/dev/null 2>&1 &)", timeout=60)
            print("ready", flush=True)
            await sandbox.exec("sleep {mark}", timeout=600)

        asyncio.run(main())
    """
    with fork.python(textwrap.dedent(script), stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        assert processes_with(mark)
    until(lambda: not processes_with(mark))


async def test_secrets_and_files_of_this_machine_are_not_there_also_behind_links(sandbox, provider, secret):
    assert SECRET not in await out(sandbox, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    project = Path(__file__).parents[2] / "pyproject.toml"
    places = [secret, project, "/etc/shadow", "/var/lib/dpkg/status", "/run/docker.sock"]
    places += [f"{prefix}{secret}" for prefix in ("/proc/1/root", "/proc/self/root", "/proc/1/cwd", "../../../..")]
    code = f"""
        for path in {[str(place) for place in places]}:
            try:
                print(path, len(open(path).read()))
            except OSError:
                pass
    """
    assert (await python(sandbox, code)).stdout == ""
    await run(sandbox, f"ln -s {secret} link; ln -s {secret.parent} folder; ln -s / root; ln -s /proc/1/root proc1")
    paths = ("link", "folder/key.txt", f"root{secret}", f"proc1{secret}", str(secret), f"../..{secret}")
    for path in paths:
        with pytest.raises(FileNotFoundError):
            await sandbox.download(path)
    for path in paths:
        with contextlib.suppress(SandboxError):
            await sandbox.upload(b"overwritten", path)
    assert (secret.read_text(), list(secret.parent.iterdir())) == (SECRET, [secret])
    if provider.name != "local":
        return
    assert await out(sandbox, "cat /etc/passwd") == "user:x:1000:1000::/workspace:/bin/sh\n"
    found = await out(sandbox, "find /home /root -type f -not -path '*/python*' -not -path '*/lib/*' 2>/dev/null")
    assert [line for line in found.splitlines() if not line.startswith(sys.base_prefix)] == []
    found = await out(sandbox, "ls /usr /usr/local | sort -u")
    usual = {"bin", "include", "lib", "lib32", "lib64", "libexec", "libx32", "local", "sbin", "share"}
    assert set(found.split()) - {"/usr:", "/usr/local:"} <= usual, "only programs and libraries"
    assert await out(sandbox, "find /usr/lib* /usr/local/lib* -maxdepth 3 -path '*/python3*/*-packages/*'") == ""


@pytest.mark.skipif(not os.access("/usr/lib", os.W_OK), reason="writes into /usr")
@pytest.mark.parametrize("has_dpkg", [True, False])
async def test_a_project_below_usr_is_not_there_and_programs_run(provider, only_local, has_dpkg, monkeypatch, tmp_path):
    if not has_dpkg:
        monkeypatch.setattr(bubblewrap, "_DPKG", tmp_path)
    bubblewrap._packaged.cache_clear()
    bubblewrap._foreign_folders.cache_clear()
    name = f"nightjar-{os.getpid()}"
    projects = [Path(folder, name) for folder in ("/usr/lib", "/usr/share", "/usr/local/lib", "/usr/local/bin")]
    sandbox = provider.new_sandbox(CreateSandboxRequest(**LIMITS))
    try:
        for project in projects:
            (project / "inside").mkdir(parents=True)
            (project / ".env").write_text(SECRET)
        monkeypatch.chdir(projects[0])
        monkeypatch.syspath_prepend(projects[0] / "inside")
        await sandbox.start()
        assert await out(sandbox, f"find /usr/*/{name} /usr/local/*/{name} -type f; echo end") == "end\n"
        assert (await run(sandbox, f"touch {projects[1]}/file")).exit_code != 0
        for command in ("perl -MPOSIX -e 1", "git init -q", "node -e 1", "TZ=Asia/Tokyo date | grep JST"):
            ended = await run(sandbox, command)
            assert ended.exit_code in {0, 127}, ended.stderr  # 127: this machine does not have it
        assert "fine" in await out(sandbox, "python3 -c 'import ssl, sqlite3; print(\"fine\")'")
    finally:
        await sandbox.close()
        for project in projects:
            shutil.rmtree(project, ignore_errors=True)
        bubblewrap._packaged.cache_clear()
        bubblewrap._foreign_folders.cache_clear()


async def test_servers_and_processes_of_this_machine_cannot_be_reached(sandbox, provider):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        result = await python(sandbox, f"import socket; socket.create_connection({address}, 20); print('reached')")
    assert (result.stdout, "ConnectionRefusedError" in result.stderr) == ("", True)
    if provider.name == "local":
        name = f"\0nightjar-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
            server.listen()
            await check_attempts(sandbox, {f"socket.socket(socket.AF_UNIX).connect({name!r})": "ECONNREFUSED"})
    victim = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        seen = await out(sandbox, f"kill -9 {victim.pid}; cat /proc/{victim.pid}/comm; kill -9 -1")
        assert ("sleep" in seen, victim.returncode) == (False, None)
    finally:
        victim.kill()
        await victim.wait()


TRY = """
import ctypes, errno, os, resource, socket, sys
libc = ctypes.CDLL(None)
for attempt in sys.argv[1:]:
    try:
        print(eval(attempt))
    except OSError as error:
        refusals = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT)
        print("refused" if error.errno in refusals else errno.errorcode.get(error.errno))
    except ImportError:
        print("missing")
"""
ATTEMPTS = {
    "privileges": {
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)": -1, "os.getuid() > 0": True,
        "open('/proc/sys/kernel/core_pattern', 'w')": "refused", "open('/proc/sysrq-trigger', 'w')": "refused",
        "open('/proc/1/oom_score_adj', 'w')": "refused", "os.setuid(0)": "refused",
    },
    "another network": {"socket.create_connection(('192.0.2.1', 80), 2)": "ENETUNREACH"},
    "packages that were not requested": {"__import__('nightjar')": "missing"},
}  # fmt: skip
LOCAL_ATTEMPTS = {
    "memory without a process": {
        "libc.shmget(0, 2**20, 0o1600)": -1, "libc.msgget(0, 0o1600)": -1, "os.memfd_create('x')": "ENOSYS",
    },
    "more processors": {"os.sched_setaffinity(0, range(os.cpu_count()))": "refused", "len(os.sched_getaffinity(0))": 1},
    "limits of the watcher": {
        "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))": "refused",
        "resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))": "refused",
        "os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))": "refused",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)": "refused",
        "os.setpriority(os.PRIO_PROCESS, 0, 19)": None,
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))": None,
    },
    "the first process": {
        "libc.ptrace(16, 1, 0, 0)": -1, "libc.ptrace(16, os.getppid(), 0, 0)": -1,
        "open('/proc/1/mem', 'rb').read(1)": "refused", "open('/proc/1/environ', 'rb').read(1)": "refused",
        "open('/proc/1/fd/0', 'rb').read(1)": "refused", "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)": "refused",
        "os.kill(1, 9)": None, "'still here'": "still here",
    },
    "further namespaces": {
        "libc.unshare(0x10000000)": -1, "libc.unshare(0x20000)": -1, "libc.syscall(56, 0x10000011, 0, 0, 0, 0)": -1,
    },
    "sockets of virtual machines": {"socket.socket(40, socket.SOCK_STREAM)": "EAFNOSUPPORT"},
}  # fmt: skip


async def check_attempts(sandbox, outcomes):
    result = await sandbox.exec(["python3", "-c", TRY, *outcomes], timeout=60)
    assert dict(zip(outcomes, result.stdout.splitlines(), strict=True)) == {
        attempt: str(outcome) for attempt, outcome in outcomes.items()
    }


async def test_what_a_sandbox_does_not_give(sandbox, provider):
    for outcomes in (ATTEMPTS | (LOCAL_ATTEMPTS if provider.name == "local" else {})).values():
        await check_attempts(sandbox, outcomes)
    if provider.name == "local":  # a command has no way to the host
        listed = (await out(sandbox, "exec ls -l /proc/self/fd")).splitlines()[1:]
        links = {line.split()[-3]: line.split()[-1].split(":")[0] for line in listed}
        assert {name: links[name] for name in "012"} == {"0": "pipe", "1": "pipe", "2": "pipe"}
        assert len(links) == 4  # and the directory that is listed


FORGED = {
    "noise": "b'\\xff' * 64", "no id": "b'{}\\n'", "no object": "b'[]\\n'", "no JSON": "b'nope\\n'",
    "huge": "b'x' * 5_000_000", "empty": "b'\\n' * 1000", "deep": "b'[' * 100_000 + b'\\n'",
}  # fmt: skip


def to_every_descriptor(data):
    """Returns code that writes to all descriptors but the first three, so also to the one of the answers."""
    return textwrap.dedent(f"""
        import os
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, {data})
            except OSError:
                pass
    """)


async def test_forged_answers_of_python_do_not_disturb_this_side(repl):
    message = {"id": 1, "status": "won", "stdout": [1], "result": {"reward": 1}, "execution_count": 10**30}
    answer = await repl.run(to_every_descriptor(json.dumps(message).encode() + b"\n"), 5)
    assert (answer.status, answer.stdout, answer.result, answer.execution_count) == ("error", "", None, None)

    async def attack(data):
        try:
            await repl.run(to_every_descriptor(data), 1)
        except PythonEndedError:
            await repl.start(60)

    for name, data in FORGED.items():
        _, grown = await growth_while(attack(data))
        assert grown < MAX_GROWTH_MB, name
        assert (await repl.run("1 + 1", 60)).result == "2", name
    answer, grown = await growth_while(repl.run("for _ in range(200): print('y' * 999_999)", 60))
    assert (len(answer.stdout) < 110_000, grown < MAX_GROWTH_MB) == (True, True)


class Attacked(SandboxEnv):
    """Rewards a rollout whose sandbox has the file that the model was asked to write."""

    async def post_rollout(self, state):
        found = await self.sandbox_client.execute_command(state["sandbox_id"], "cat answer", timeout=60)
        state["found"] = found.stdout.strip()


class Graded(SandboxEnv):
    """Rewards a rollout by the exit code of a check that never passes."""

    async def post_rollout(self, state):
        await self.sandbox_client.upload_bytes(state["sandbox_id"], "check.sh", b"sleep 0.3\nexit 1\n")
        done = await self.sandbox_client.execute_command(state["sandbox_id"], "sleep 0.3; sh check.sh", timeout=60)
        state["found"] = "42" if done.exit_code == 0 else ""


async def wrote_it(state) -> float:
    return float(state["found"] == "42")


async def evaluate(env, script):
    with ModelServer(Script(script)) as server:
        config = ClientConfig(api_base_url=server.base_url, api_key_var="NO_KEY")
        return (await env.evaluate(config, "any"))["outputs"]


async def test_an_attack_in_one_rollout_leaves_all_their_reward(provider):
    def turn(messages):
        attack = ATTACKS.get(last_user_text(messages))
        commands = [*([attack] if attack else []), "echo 42 > answer"]
        done = sum(message["role"] == "assistant" for message in messages)
        return tool_call("bash", command=commands[done]) if done < len(commands) else "Done."

    questions = ["honest", "forks", "honest", "memory", "honest", "output", "kill", "honest"]
    options = {"sandbox_provider": provider, "timeout_per_command_seconds": 3, **LIMITS}
    dataset = [{"question": question} for question in questions]
    env = Attacked(dataset=dataset, rubric=Rubric(funcs=[wrote_it]), **options)
    rows = await evaluate(env, turn)
    assert {row["example_id"]: row["reward"] for row in rows} == dict.fromkeys(range(len(questions)), 1.0)
    assert env.active_sandboxes == set()


async def test_a_process_left_behind_does_not_forge_what_a_check_finds(provider):
    forge = "(setsid sh -c 'while sleep 0.01; do echo exit 0 > check.sh; done' >/dev/null 2>&1 &)"
    for keeps_processes, reward in ((False, 0.0), (True, 1.0)):
        env = Graded(dataset=[{"question": "?"}], rubric=Rubric(funcs=[wrote_it]), sandbox_provider=provider, **LIMITS)
        env.keeps_processes = keeps_processes
        [row] = await evaluate(env, [tool_call("bash", command=forge), "Done."])
        assert row["reward"] == reward


async def test_a_python_that_is_attacked_leaves_a_result(provider):
    options = {"sandbox_provider": provider, "timeout_per_command_seconds": 1, **LIMITS}
    env = PythonEnv(dataset=[{"question": "?"}], pip_install_packages="", **options)
    attacks = ["while True: pass", "import os; os.kill(0, 9)", "import os; os.fork() or os._exit(1)", "'x' * 10**9"]
    [row] = await evaluate(env, [*(tool_call("python", code=code) for code in [*attacks, "6 * 7"]), "42"])
    results = [message["content"] for message in row["completion"] if message["role"] == "tool"]
    assert (row.get("error"), len(results), results[0]) == (None, 5, "Error: Command timed out after 1s")
    assert (results[-1].startswith("Out["), results[-1].endswith("]: 42")) == (True, True)


async def test_many_sandboxes_at_once_all_answer_and_end(only_local):
    provider = LocalProvider()

    async def one(number):
        sandbox = provider.new_sandbox(CreateSandboxRequest(memory_gb=0.25))
        await sandbox.start()
        try:
            return (await sandbox.exec(f"echo {number}", timeout=30)).stdout
        finally:
            await sandbox.close()

    descriptors = psutil.Process().num_fds()
    said = await asyncio.gather(*(one(number) for number in range(40)))
    assert said == [f"{number}\n" for number in range(40)]
    assert psutil.Process().num_fds() <= descriptors + 5
    assert not [child for child in psutil.Process().children() if child.name() == "bwrap"]
