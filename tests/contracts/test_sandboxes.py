"""What every kind of sandbox does.

Local sandboxes need bubblewrap. Containers are made by a small engine of our own (``docker_engine.py``), and by a real
one where ``NIGHTJAR_TEST_IMAGE`` names an image with bash and Python that the daemon at ``DOCKER_HOST`` has.
"""

import asyncio
import os
import runpy
from pathlib import Path

import pytest

from nightjar.errors import SandboxError
from nightjar.sandboxes import CommandResult, CreateSandboxRequest, DockerProvider, LocalProvider, Stream
from nightjar.sandboxes.python_repl import PythonEndedError, PythonRepl

Engine = runpy.run_path(str(Path(__file__).with_name("docker_engine.py")))["Engine"]


def local(tmp_path):
    if problem := LocalProvider.problem():
        pytest.skip(problem)
    yield LocalProvider(), "any"


def engine(tmp_path):
    docker = pytest.importorskip("docker")
    engine = Engine(tmp_path / "docker.sock")
    provider = DockerProvider(client=docker.DockerClient(base_url=f"unix://{tmp_path}/docker.sock", version="1.41"))
    yield provider, "python:3.11-slim"
    provider.close()
    engine.close()


def daemon(tmp_path):
    provider = DockerProvider()
    yield provider, os.environ["NIGHTJAR_TEST_IMAGE"]
    provider.close()


KINDS = [local, engine, *([daemon] if "NIGHTJAR_TEST_IMAGE" in os.environ else [])]


@pytest.fixture(params=KINDS, ids=lambda make: make.__name__)
def provided(request, tmp_path):
    yield from request.param(tmp_path)


@pytest.fixture
async def sandbox(provided):
    provider, image = provided
    request = {"docker_image": image, "memory_gb": 0.25, "environment_vars": {"COLOUR": "green"}, "labels": ["a=b"]}
    sandbox = provider.new_sandbox(CreateSandboxRequest(name="contract", **request))
    await sandbox.start()
    yield sandbox
    await sandbox.close()


SAID = [
    (["echo", "$HOME;", "two  words"], {}, "$HOME; two  words\n"),
    ("ls", {"working_dir": "below"}, "here\n"),
    ("cat below/here", {}, "kept\n"),
    ("echo $COLOUR $SIZE", {"env": {"SIZE": "large"}}, "green large\n"),
    ("head -c 1000000 | wc -l | tr -d ' '", {"stdin": b"line\n" * 200_000}, "200000\n"),
    ("echo done", {"stdin": b"x" * 2_000_000}, "done\n"),
    (r"printf 'a\377b'", {}, "a\ufffdb"),
]
"""Commands, what they are given beside, and what they say."""


async def test_commands_have_what_they_are_given_and_give_output_errors_and_exit_code(sandbox):
    result = await sandbox.exec("echo out; echo err >&2; exit 3", timeout=60)
    assert result == CommandResult("out\n", "err\n", 3)
    result = await sandbox.exec("no-such-program", timeout=60)
    assert (result.exit_code, "no-such-program" in result.stderr) == (127, True)
    await sandbox.exec("mkdir -p below; echo kept > below/here", timeout=60)
    said = [(await sandbox.exec(command, timeout=60, **options)).stdout for command, options, _ in SAID]
    assert said == [stdout for _, _, stdout in SAID]
    result = await sandbox.exec("yes | head -c 3000000; echo end >&2", timeout=60, max_output_bytes=1000)
    assert (result.is_truncated, result.stderr) == (True, "end\n")
    assert result.stdout == "y\n" * 500 + "\n[cut: more than 1000 bytes]"


async def test_commands_run_concurrently(sandbox):
    waiting = "touch {0}; until test -f {1}; do sleep 0.02; done; echo {0}"
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    results = await asyncio.gather(*(sandbox.exec(waiting.format(*pair), timeout=60) for pair in pairs))
    assert [result.stdout for result in results] == ["a\n", "b\n", "c\n", "d\n"]


@pytest.mark.slow
async def test_the_time_limit_ends_a_command_and_leaves_others_alone(sandbox):
    await sandbox.exec("(until test -f go; do sleep 0.02; done; echo x > late) >/dev/null 2>&1 &", timeout=60)
    result = await sandbox.exec("echo begun; sleep 600", timeout=2)
    assert (result.is_timed_out, result.exit_code, result.stdout) == (True, None, "begun\n")
    assert (await sandbox.exec("echo again", timeout=60)).stdout == "again\n"
    assert (await sandbox.exec("touch go; until test -s late; do sleep 0.02; done", timeout=60)).exit_code == 0


async def test_files_are_downloaded_as_they_were_uploaded(sandbox, tmp_path):
    for path in ("plain.bin", "a/deep/er.bin", "with space;$(touch no).bin"):
        for content in (bytes(range(256)) * 2000, b""):
            await sandbox.upload(content, path)
            assert await sandbox.download(path) == content
    await sandbox.upload(b"result", "out.txt")
    assert (await sandbox.exec("cat out.txt", timeout=60)).stdout == "result"
    await sandbox.download_to("out.txt", tmp_path / "copy.txt")
    assert (tmp_path / "copy.txt").read_bytes() == b"result"


async def test_files_that_are_too_large_not_regular_or_not_writable_are_refused(sandbox):
    await sandbox.exec("head -c 2000 /dev/zero > large; mkdir folder", timeout=60)
    with pytest.raises(SandboxError, match="larger than 1000 bytes"):
        await sandbox.download("large", max_bytes=1000)
    with pytest.raises(SandboxError, match="cannot write 'folder'"):
        await sandbox.upload(b"x", "folder")
    for make in ("true", "mkfifo thing || mkdir thing", "ln -s /dev/zero thing", "mkdir thing"):
        await sandbox.exec(f"rm -rf thing; {make}", timeout=60)
        with pytest.raises(FileNotFoundError, match="'thing'"):
            await sandbox.download("thing")


async def test_processes_are_written_to_and_read_from_and_killed_when_they_are_closed(sandbox):
    process = await sandbox.spawn(["cat"])
    await process.write(b"ping")
    output = await asyncio.wait_for(process.read(), 60)
    assert (output.stream, output.data) == (Stream.STDOUT, b"ping")
    await process.close()
    process = await sandbox.spawn("echo $$; exec sleep 600")
    pid = (await asyncio.wait_for(process.read(), 60)).data.decode().strip()
    await process.close()
    assert (await sandbox.exec(f"kill -0 {pid}", timeout=60)).exit_code != 0


async def test_all_processes_can_be_ended_and_the_start_command_starts_again(provided):
    provider, image = provided
    request = CreateSandboxRequest(docker_image=image, memory_gb=0.25, start_command="echo up >> starts; sleep 600")
    sandbox = provider.new_sandbox(request)
    await sandbox.start()
    until_started = 'until [ "$(cat starts 2>/dev/null | wc -l)" -ge {} ]; do sleep 0.02; done'
    await sandbox.exec(until_started.format(1), timeout=60)
    await sandbox.exec("(sleep 0.5; echo x > late) >/dev/null 2>&1 &", timeout=60)
    await sandbox.end_processes()
    result = await sandbox.exec(f"{until_started.format(2)}; sleep 0.8; cat starts late", timeout=60)
    await sandbox.close()
    assert result.stdout == "up\nup\n"


@pytest.mark.parametrize("has_loop", [True, False])
async def test_the_end_ends_a_running_command_and_may_be_repeated_and_come_without_an_event_loop(sandbox, has_loop):
    running = asyncio.create_task(sandbox.exec("touch begun; sleep 600"))
    await sandbox.exec("until test -f begun; do sleep 0.02; done", timeout=60)
    for _ in range(2):
        await (sandbox.close() if has_loop else asyncio.to_thread(sandbox.close_now))
    await asyncio.wait([running], timeout=60)
    assert running.done()
    assert running.exception() is not None or running.result().exit_code == 137
    with pytest.raises(SandboxError, match="not running"):
        await sandbox.exec("true", timeout=60)


@pytest.fixture
async def python(sandbox):
    python = PythonRepl(sandbox, max_output_bytes=2000)
    await python.start(60)
    yield python
    await python.close()


async def test_python_keeps_its_variables_and_captures_output_and_tracebacks(python):
    assert (await python.run("x = 6", 60)).result is None
    answer = await python.run("x * 7", 60)
    assert (answer.status, answer.result, answer.execution_count) == ("ok", "42", 2)

    code = "import os, sys; print('one'); os.system('echo two; echo three >&2'); print('four', file=sys.stderr)"
    answer = await python.run(code, 60)
    assert (answer.stdout, answer.stderr) == ("one\ntwo\n", "three\nfour\n")

    answer = await python.run("def half(n):\n    return n / 0\nhalf(1)", 60)
    lines = answer.result.splitlines()
    assert (answer.status, lines[0]) == ("error", "Traceback (most recent call last):")
    assert lines[-1] == "ZeroDivisionError: division by zero"
    places = [line.partition(", ")[2] for line in lines if line.startswith('  File "<cell 4>"')]
    assert places == ["line 3, in <module>", "line 2, in half"]
    assert sum(line.startswith("  File") for line in lines) == 2, "of the code alone"


async def test_python_survives_what_would_end_a_program_and_cuts_what_is_too_long(python):
    for code in ("exit()", "raise KeyboardInterrupt", "1 +", "input()"):
        assert (await python.run(code, 60)).status == "error", code
        assert (await python.run("1", 60)).result == "1"
    for code in ("print('y' * 5_000_000)", "'y' * 5_000_000", "raise ValueError('y' * 5_000_000)"):
        answer = await python.run(code, 60)
        longest = max(answer.stdout, answer.result or "", key=len)
        assert 1900 < len(longest) < 2100
        assert "[cut: " in longest


@pytest.mark.slow
async def test_python_is_interrupted_and_keeps_its_variables_and_one_that_ends_itself_says_how(python):
    answer = await python.run("import time\nx = 5\nprint('begun')\ntime.sleep(600)", 2)
    assert (answer.is_timed_out, answer.stdout) == (True, "begun\n")
    assert (await python.run("x", 60)).result == "5"
    with pytest.raises(PythonEndedError, match="exit code 3"):
        await python.run("import os; os._exit(3)", 60)


@pytest.mark.long
async def test_python_is_ended_when_it_cannot_be_interrupted(python):
    stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)"
    with pytest.raises(PythonEndedError, match="could not be interrupted") as caught:
        await python.run(stubborn, 2)
    assert caught.value.is_timed_out
    await python.start(60)
    assert (await python.run("1", 60)).result == "1"
