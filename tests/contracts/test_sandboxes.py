"""What every kind of sandbox does.

Local sandboxes need bubblewrap. Containers are made by a small engine of our own (``docker_engine.py``), and by a real
one where ``NIGHTJAR_TEST_IMAGE`` names an image with bash and Python that the daemon at ``DOCKER_HOST`` has.
"""

import asyncio
import os
import runpy
import time
from pathlib import Path

import pytest

from nightjar.errors import SandboxError
from nightjar.sandboxes import CommandResult, CreateSandboxRequest, DockerProvider, LocalProvider, Stream
from nightjar.sandboxes.python_repl import PythonEndedError, PythonRepl

Engine = runpy.run_path(str(Path(__file__).with_name("docker_engine.py")))["Engine"]


def local(tmp_path, monkeypatch):
    if problem := LocalProvider.problem():
        pytest.skip(problem)
    yield LocalProvider(), "any"


def engine(tmp_path, monkeypatch):
    docker = pytest.importorskip("docker")
    engine = Engine(tmp_path / "docker.sock")
    provider = DockerProvider(client=docker.DockerClient(base_url=f"unix://{tmp_path}/docker.sock", version="1.41"))
    yield provider, "python:3.11-slim"
    provider.close()
    engine.close()


def daemon(tmp_path, monkeypatch):
    provider = DockerProvider()
    yield provider, os.environ["NIGHTJAR_TEST_IMAGE"]
    provider.close()


KINDS = [local, engine, *([daemon] if "NIGHTJAR_TEST_IMAGE" in os.environ else [])]


@pytest.fixture(params=KINDS, ids=lambda make: make.__name__)
def provided(request, tmp_path, monkeypatch):
    yield from request.param(tmp_path, monkeypatch)


@pytest.fixture
async def sandbox(provided):
    provider, image = provided
    request = {"docker_image": image, "memory_gb": 0.25, "environment_vars": {"COLOUR": "green"}, "labels": ["a=b"]}
    sandbox = provider.new_sandbox(CreateSandboxRequest(name="contract", **request))
    await sandbox.start()
    yield sandbox
    await sandbox.close()


class TestCommands:
    async def test_give_output_errors_and_exit_code(self, sandbox):
        result = await sandbox.exec("echo out; echo err >&2; exit 3", timeout=10)
        assert result == CommandResult("out\n", "err\n", 3)
        result = await sandbox.exec("no-such-program", timeout=10)
        assert (result.exit_code, "no-such-program" in result.stderr) == (127, True)

    @pytest.mark.parametrize(("command", "options", "stdout"), [
        (["echo", "$HOME;", "two  words"], {}, "$HOME; two  words\n"), ("ls", {"working_dir": "below"}, "here\n"),
        ("cat below/here", {}, "kept\n"), ("echo $COLOUR $SIZE", {"env": {"SIZE": "large"}}, "green large\n"),
        ("head -c 1000000 | wc -l | tr -d ' '", {"stdin": b"line\n" * 200_000}, "200000\n"),
        ("echo done", {"stdin": b"x" * 2_000_000}, "done\n"), (r"printf 'a\377b'", {}, "a\ufffdb"),
    ],
        ids=[
            *("program and arguments", "working directory", "files of earlier commands", "variables", "standard input"),
            *("unread standard input", "output that is no text"),
        ],
    )  # fmt: skip
    async def test_have_what_they_are_given(self, sandbox, command, options, stdout):
        await sandbox.exec("mkdir -p below; echo kept > below/here", timeout=20)
        assert (await sandbox.exec(command, timeout=20, **options)).stdout == stdout

    async def test_run_concurrently(self, sandbox):
        waiting = "touch {0}; until test -f {1}; do sleep 0.02; done; echo {0}"
        pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
        results = await asyncio.gather(*(sandbox.exec(waiting.format(*pair), timeout=60) for pair in pairs))
        assert [result.stdout for result in results] == ["a\n", "b\n", "c\n", "d\n"]

    async def test_are_cut_when_they_say_too_much(self, sandbox):
        result = await sandbox.exec("yes | head -c 3000000; echo end >&2", timeout=20, max_output_bytes=1000)
        assert (result.is_truncated, result.stderr) == (True, "end\n")
        assert result.stdout == "y\n" * 500 + "\n[cut: more than 1000 bytes]"


class TestTimeLimit:
    async def test_ends_a_command(self, sandbox):
        started = time.monotonic()
        result = await sandbox.exec("echo begun; sleep 60", timeout=2)
        assert (result.is_timed_out, result.exit_code, result.stdout) == (True, None, "begun\n")
        assert time.monotonic() - started < 30
        assert (await sandbox.exec("echo again", timeout=10)).stdout == "again\n"

    async def test_leaves_other_commands_alone(self, sandbox):
        await sandbox.exec("(until test -f go; do sleep 0.02; done; echo x > late) >/dev/null 2>&1 &", timeout=10)
        await sandbox.exec("sleep 60", timeout=0.2)
        assert (await sandbox.exec("touch go; until test -s late; do sleep 0.02; done", timeout=30)).exit_code == 0


class TestFiles:
    @pytest.mark.parametrize("path", ["plain.bin", "a/deep/er.bin", "with space;$(touch no).bin"])
    async def test_are_downloaded_as_they_were_uploaded(self, sandbox, path):
        for content in (bytes(range(256)) * 2000, b""):
            await sandbox.upload(content, path)
            assert await sandbox.download(path) == content

    async def test_that_are_too_large_are_refused(self, sandbox):
        await sandbox.exec("head -c 2000 /dev/zero > large", timeout=10)
        with pytest.raises(SandboxError, match="larger than 1000 bytes"):
            await sandbox.download("large", max_bytes=1000)

    @pytest.mark.parametrize("make", ["mkdir thing", "mkfifo thing || mkdir thing", "ln -s /dev/zero thing", "true"])
    async def test_are_regular_or_missing(self, sandbox, make):
        await sandbox.exec(make, timeout=10)
        with pytest.raises(FileNotFoundError, match="'thing'"):
            await sandbox.download("thing")

    async def test_that_cannot_be_written_are_an_error(self, sandbox):
        await sandbox.exec("mkdir folder", timeout=10)
        with pytest.raises(SandboxError, match="cannot write 'folder'"):
            await sandbox.upload(b"x", "folder")

    async def test_are_seen_by_commands_and_copied_to_this_machine(self, sandbox, tmp_path):
        await sandbox.upload(b"result", "out.txt")
        assert (await sandbox.exec("cat out.txt", timeout=10)).stdout == "result"
        await sandbox.download_to("out.txt", tmp_path / "copy.txt")
        assert (tmp_path / "copy.txt").read_bytes() == b"result"


class TestProcesses:
    async def test_are_written_to_and_read_from(self, sandbox):
        process = await sandbox.spawn(["cat"])
        await process.write(b"ping")
        output = await asyncio.wait_for(process.read(), 10)
        assert (output.stream, output.data) == (Stream.STDOUT, b"ping")
        await process.close()

    async def test_are_killed_when_they_are_closed(self, sandbox):
        process = await sandbox.spawn("echo $$; exec sleep 60")
        pid = (await asyncio.wait_for(process.read(), 10)).data.decode().strip()
        await process.close()
        assert (await sandbox.exec(f"kill -0 {pid}", timeout=10)).exit_code != 0

    async def test_can_all_be_ended(self, provided):
        provider, image = provided
        request = CreateSandboxRequest(docker_image=image, memory_gb=0.25, start_command="echo up >> starts; sleep 60")
        sandbox = provider.new_sandbox(request)
        await sandbox.start()
        await sandbox.exec(_until_started(1), timeout=20)
        await sandbox.exec("(sleep 0.5; echo x > late) >/dev/null 2>&1 &", timeout=10)
        await sandbox.end_processes()
        result = await sandbox.exec(f"{_until_started(2)}; sleep 0.8; cat starts late", timeout=20)
        await sandbox.close()
        assert result.stdout == "up\nup\n"


def _until_started(times: int) -> str:
    return f'until [ "$(cat starts 2>/dev/null | wc -l)" -ge {times} ]; do sleep 0.02; done'


class TestTheEnd:
    @pytest.mark.parametrize("has_loop", [True, False])
    async def test_may_be_repeated_and_may_come_without_an_event_loop(self, sandbox, has_loop):
        for _ in range(2):
            await (sandbox.close() if has_loop else asyncio.to_thread(sandbox.close_now))
        with pytest.raises(SandboxError, match="not running"):
            await sandbox.exec("true", timeout=10)

    async def test_ends_a_running_command(self, sandbox):
        running = asyncio.create_task(sandbox.exec("touch begun; sleep 600"))
        await sandbox.exec("until test -f begun; do sleep 0.02; done", timeout=30)
        await sandbox.close()
        await asyncio.wait([running], timeout=60)
        assert running.done()
        assert running.exception() is not None or running.result().exit_code == 137


class TestPython:
    @pytest.fixture
    async def python(self, sandbox):
        python = PythonRepl(sandbox, max_output_bytes=2000)
        await python.start(20)
        yield python
        await python.close()

    async def test_keeps_its_variables(self, python):
        assert (await python.run("x = 6", 10)).result is None
        answer = await python.run("x * 7", 10)
        assert (answer.status, answer.result, answer.execution_count) == ("ok", "42", 2)

    async def test_captures_its_output_and_that_of_its_child_processes(self, python):
        code = "import os, sys; print('one'); os.system('echo two; echo three >&2'); print('four', file=sys.stderr)"
        answer = await python.run(code, 10)
        assert (answer.stdout, answer.stderr) == ("one\ntwo\n", "three\nfour\n")

    async def test_shows_a_traceback_of_the_code_alone(self, python):
        answer = await python.run("def half(n):\n    return n / 0\nhalf(1)", 10)
        lines = answer.result.splitlines()
        assert (answer.status, lines[0]) == ("error", "Traceback (most recent call last):")
        assert lines[-1] == "ZeroDivisionError: division by zero"
        places = [line.partition(", ")[2] for line in lines if line.startswith('  File "<cell 1>"')]
        assert places == ["line 3, in <module>", "line 2, in half"]
        assert sum(line.startswith("  File") for line in lines) == 2

    @pytest.mark.parametrize("code", ["exit()", "raise KeyboardInterrupt", "1 +", "input()"])
    async def test_survives_what_would_end_a_program(self, python, code):
        assert (await python.run(code, 10)).status == "error"
        assert (await python.run("1", 10)).result == "1"

    async def test_is_interrupted_and_keeps_its_variables(self, python):
        answer = await python.run("import time\nx = 5\nprint('begun')\ntime.sleep(60)", 2)
        assert (answer.is_timed_out, answer.stdout) == (True, "begun\n")
        assert (await python.run("x", 10)).result == "5"

    @pytest.mark.long
    async def test_is_ended_when_it_cannot_be_interrupted(self, python):
        stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
        with pytest.raises(PythonEndedError, match="could not be interrupted") as caught:
            await python.run(stubborn, 2)
        assert caught.value.is_timed_out
        await python.start(20)
        assert (await python.run("1", 10)).result == "1"

    async def test_that_ends_itself_says_how(self, python):
        with pytest.raises(PythonEndedError, match="exit code 3"):
            await python.run("import os; os._exit(3)", 10)

    @pytest.mark.parametrize("code", ["print('y' * 5_000_000)", "'y' * 5_000_000", "raise ValueError('y' * 5_000_000)"])
    async def test_cuts_what_is_too_long(self, python, code):
        answer = await python.run(code, 20)
        longest = max(answer.stdout, answer.result or "", key=len)
        assert 1900 < len(longest) < 2100
        assert "[cut: " in longest
