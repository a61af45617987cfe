"""Real runs: the command line in processes of its own, against a model server on loopback.

Every test has a folder of its own (``tmp_path``), in which the command is typed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import until

from nightjar.model_server import ArithmeticSolver, ModelServer, Script, last_user_text
from nightjar.model_server.answerers import solve
from nightjar.warehouse import Warehouse

PATIENCE_SECONDS = 120
READING = {("eval", "get"), ("eval", "list"), ("eval", "samples"), ("eval", "view-config")}
SIGNS_OF_A_BUG = ("Traceback", "was never awaited", "was never retrieved", "Unclosed", "Exception ignored",
                  "SyntaxWarning")  # fmt: skip


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)  # to start commands takes a second


@dataclass(frozen=True)
class Ended:
    """A command that has ended; negative codes are the signals that ended it."""

    code: int
    stdout: str
    stderr: str

    @property
    def errors(self):
        return [line for line in self.stderr.splitlines() if line.startswith("Error: ")]

    def ok(self):
        assert self.code == 0, self.stderr
        return self

    @property
    def error(self):
        """The only error of a command that failed as expected."""
        assert self.code == 1, self.stderr
        [line] = self.errors
        return line

    @property
    def only_line(self):
        """That error, with nothing else on stderr."""
        assert self.stderr.count("\n") == 1, self.stderr
        return self.error


class Started:
    """A command that was started, alone in a process group and with its output in files."""

    def __init__(self, fork, command, folder, env, log):
        self._log = log
        with log.with_suffix(".out").open("wb") as out, log.with_suffix(".err").open("wb") as err:
            self._process = fork.nightjar(*command, env=env, cwd=folder, stdout=out, stderr=err)
        self.pid, self.send = self._process.pid, self._process.send_signal

    @property
    def stdout(self):
        return self._log.with_suffix(".out").read_text("utf-8")

    @property
    def stderr(self):
        return self._log.with_suffix(".err").read_text("utf-8")

    @property
    def is_running(self):
        return self._process.poll() is None

    @property
    def leaves_processes(self):
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def wait_until(self, condition):
        def happened():
            found = condition()
            assert found or self.is_running, f"it ended before its time:\n{self.stdout}{self.stderr}"
            return found

        until(happened, told=lambda: f"waited in vain:\n{self.stdout}{self.stderr}", pause_seconds=0.002)

    def kill(self):
        self._process.kill()
        return self.wait()

    def wait(self, timeout_seconds=PATIENCE_SECONDS):
        code = self._process.wait(timeout_seconds)
        ended = Ended(code, self.stdout, self.stderr)
        found = [sign for sign in SIGNS_OF_A_BUG if sign in ended.stderr]
        assert not found, f"{found} on stderr:\n{ended.stderr}"
        return ended

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class RunFolder:
    """A run directory, as another program reads it."""

    def __init__(self, path):
        self.path = path

    def __str__(self):
        return str(self.path)

    def lines(self, name):
        """Returns the complete lines of a file that may still be written to; none if it is missing."""
        path = self.path / name
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [json.loads(line) for line in whole.splitlines()]

    def count_lines(self, name):
        path = self.path / name
        return path.read_bytes().count(b"\n") if path.exists() else 0

    @property
    def results(self):
        return self.lines("results.jsonl")

    @property
    def results_that_count(self):
        """The results without timing and number of attempts, which differ from run to run."""
        return [{name: row[name] for name in row if name not in {"timing", "attempts"}} for row in self.results]

    @property
    def attempts(self):
        return self.lines("attempts.jsonl")

    @property
    def failed_attempts(self):
        return [attempt for attempt in self.attempts if attempt["error"]]

    @property
    def metadata(self):
        """``metadata.json`` without its digest."""
        metadata = json.loads((self.path / "metadata.json").read_bytes())
        metadata.pop("digest", None)
        return metadata

    @property
    def content(self):
        """Every file but the lock, byte for byte."""
        return {path.name: path.read_bytes() for path in self.path.iterdir() if path.name != ".lock"}


class Nightjar:
    """The command ``nightjar``, typed in a folder of its own."""

    def __init__(self, folder, fork, warehouse="outputs/warehouse"):
        self.folder = folder
        self.warehouse = Warehouse(folder / warehouse)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PREFECT_", "NIGHTJAR_")) and not name.endswith("_API_KEY")
        }
        homes = {"PREFECT_HOME": str(folder / "prefect"), "NIGHTJAR_HOME": f"{folder}-home"}
        self.env = inherited | homes | {"COLUMNS": "200", "NO_COLOR": "1"}
        self._fork = fork
        self._started = []

    def start(self, *arguments, **variables):
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        command, log = map(str, arguments), logs / str(len(self._started))
        started = Started(self._fork, command, self.folder, self.env | variables, log)
        self._started.append(started)
        return started

    def start_eval(self, env_id, *arguments, server=None, **variables):
        endpoint = ("-m", "local", "-b", server.url) if server else ()
        return self.start("eval", "run", env_id, *endpoint, "--direct", *arguments, **variables)

    def eval(self, env_id, *arguments, server=None, **variables):
        return self.start_eval(env_id, *arguments, server=server, **variables).wait()

    def json(self, *words):
        """Types a command that must succeed, and returns the JSON that it prints.

        What only reads runs here, where the process that answers its queries is there already.
        """
        if words[:2] not in READING:
            return json.loads(self.start(*words, "--json").wait().ok().stdout)
        from typer.testing import CliRunner

        from nightjar.cli.app import app

        with contextlib.chdir(self.folder):
            variables = dict.fromkeys(os.environ) | self.env
            ended = CliRunner().invoke(app, [*map(str, words), "--json"], env=variables, catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)

    def write_environment(self, name, source):
        path = self.folder / "environments" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source, "utf-8")

    @property
    def runs(self):
        """The run directories, oldest first."""
        walked = ((Path(path), files) for path, _, files in os.walk(self.folder))  # folders may go meanwhile
        found = [path for path, files in walked if "config.json" in files and path.parts[-3] == "evals"]
        return [RunFolder(path) for path in sorted(found, key=lambda path: path.stat().st_ctime)]

    @property
    def run(self):
        [run] = self.runs
        return run

    def sql(self, statement):
        return self.warehouse.query(statement).rows

    def close(self):
        for started in self._started:
            started.end()


@pytest.fixture(scope="session")
def nightjar_in(fork):
    with contextlib.ExitStack() as stack:
        yield lambda folder, **options: stack.enter_context(contextlib.closing(Nightjar(folder, fork, **options)))


@pytest.fixture
def nightjar(tmp_path, fork):
    with contextlib.closing(Nightjar(tmp_path, fork)) as command:
        yield command


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:
        yield lambda answerer=None, **options: stack.enter_context(
            ModelServer(answerer or ArithmeticSolver(), **options)
        )


@pytest.fixture
def opinionated():
    """Gets the same three problems of ten wrong in every run, so that runs can be compared."""

    def answer(messages):
        question = last_user_text(messages)
        is_wrong = zlib.crc32(question.encode()) % 10 < 3
        return f"The answer is \\boxed{{{solve(question)[1] + is_wrong}}}."

    return Script(answer)


@pytest.fixture(scope="session")
def gsm8k():
    folder = next(
        (folder for parent in Path(__file__).parents if (folder := parent / "shared/data/gsm8k").is_dir()), None
    )
    if folder is None:
        pytest.skip("GSM8K and its recordings are not beside this checkout (shared/data/gsm8k)")
    return folder


@pytest.fixture
def mount(tmp_path):
    """Mounts a small disk in memory with certain options; skips the test where that is not permitted."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a disk in memory")
    disk = tmp_path / "disk"
    disk.mkdir()

    def apply(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
        return disk

    yield apply
    subprocess.run(["umount", "--lazy", disk], capture_output=True)
