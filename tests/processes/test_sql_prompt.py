"""``nightjar sql`` on a real terminal, and in a real pipe."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from waiting import until

from nightjar.warehouse import Warehouse

ENDLESS = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(10000000) b"
PROMPT = "nightjar>"
HINT = "end the statement with ; or discard it with Ctrl-C"
MISTAKE = 'Error: The SQL cannot be read: Parser Error: syntax error at or near "SELCT"\n'
RING = "\a"
SECONDS = 120
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
ENTER, TAB, UP, CTRL_C, CTRL_D, CTRL_R = "\r", "\t", "\x1b[A", "\x03", "\x04", "\x12"


@pytest.fixture(scope="module")
def publish(run_writer):
    def publish(warehouse, run_id):
        rollout = run_writer.rollout(0, 0, completion=[{"role": "assistant", "content": f"four{RING}"}])
        told = {"env_id": "sums", "model": "m", "status": "completed", "rollouts": 1, "scored": 1, "failed": 0}
        Warehouse(warehouse).publish(run_writer.write(warehouse.parent / run_id, [rollout], run_id=run_id, **told))

    return publish


class Terminal:
    """A program on a terminal of 100 columns and 200 lines, typed into and read as a person would."""

    def __init__(self, fork, arguments, environment):
        import pyte

        self.screen = pyte.Screen(100, 200)
        self.stream = pyte.ByteStream(self.screen)
        self.bells = 0
        self.screen.bell = self._ring
        self.file, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 100, 0, 0))
        self.process = fork.nightjar(*arguments, env=environment, stdin=child, stdout=child, stderr=child)
        os.close(child)

    @property
    def text(self):
        lines = self.screen.buffer  # lines with text only: rendering all 200 takes long
        return "\n".join(self._line(lines[y]) for y in range(max(lines, default=-1) + 1)).rstrip()

    def type(self, *keys):
        os.write(self.file, "".join(keys).encode())

    def wait_for(self, is_there, *, seconds=SECONDS):
        """Reads until the screen is as it should be, and returns its text."""
        end = time.monotonic() + seconds
        while not is_there(self.text):
            if not select.select([self.file], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"After {seconds} s the screen is\n{self.text}")
            self.stream.feed(os.read(self.file, 65536))
        return self.text

    def wait_until_it_asks(self):
        self.wait_for(lambda text: text.endswith(PROMPT))
        return self

    def ask(self, *keys):
        """Types a line, and returns what is on the screen between this prompt and the next."""
        before = self.text.count(PROMPT)
        self.type(*keys, ENTER)
        text = self.wait_for(lambda text: text.count(PROMPT) > before and text.endswith(PROMPT))
        return text.split(PROMPT)[before].partition("\n")[2]

    def end(self):
        """Returns the exit code, when the program has ended by itself."""
        with suppress(OSError):  # how Linux says that the other side has closed
            self.wait_for(lambda _: False)
        return self.process.wait(SECONDS)

    def close(self):
        os.close(self.file)
        self.process.kill()
        self.process.wait(SECONDS)

    def _line(self, cells):
        return "".join(cells[x].data for x in range(max(cells, default=-1) + 1)).rstrip()

    def _ring(self, *_):
        self.bells += 1


@pytest.fixture(scope="module")
def published(tmp_path_factory, publish):
    warehouse = tmp_path_factory.mktemp("published") / "warehouse"
    publish(warehouse, "first")
    return warehouse


@pytest.fixture
def environment(tmp_path, published):
    shutil.copytree(published, tmp_path / "warehouse")
    return {
        **{name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "COLUMNS", "LINES"}},
        "NIGHTJAR_HOME": str(tmp_path / "home"), "NIGHTJAR_WAREHOUSE": str(tmp_path / "warehouse"),
        "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm",
    }  # fmt: skip


@pytest.fixture
def open_terminal(environment, fork):
    terminals = []

    def open_terminal(*arguments):
        terminals.append(Terminal(fork, arguments, environment))
        return terminals[-1]

    yield open_terminal
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def prompt(open_terminal):
    return open_terminal("sql").wait_until_it_asks()


def wait_until_busy(pid):
    """Waits until a process and its children have used a second of CPU more."""

    def used():
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    before = used()
    until(lambda: used() > before + 1)


def test_a_statement_goes_on_until_its_semicolon_and_tab_completes(prompt):
    prompt.type("SELECT run_id,", ENTER)
    prompt.wait_for(lambda text: text.endswith(f"...> {HINT}"))
    assert prompt.ask("model FROM runs;").splitlines()[1:-1] == ["run_id  model", "──────  ─────", "first   m"]
    prompt.type("hardest env=su", TAB)
    prompt.wait_for(lambda text: f"{PROMPT} hardest env=sums" in text)


def test_a_mistake_is_one_line_and_ends_what_is_pasted_but_not_the_prompt(prompt):
    assert prompt.ask("SELCT 1;") == MISTAKE
    assert prompt.ask(".table").startswith("Error: Unknown command '.table'. Choose one of: .tables,")
    assert prompt.ask("hardest").startswith("Error: Query 'hardest' needs a value for 'env'.")
    answer = prompt.ask(f"{PASTE}.format csv\rSELECT 1 AS a;\rleaderboard\rSELCT 2;\rSELECT 3 AS c;{PASTED}")
    assert "a\n1\n1 row in" in answer
    assert "env_id,model,avg_reward" in answer
    assert answer.endswith(f"{MISTAKE}The following input was not run: SELECT 3 AS c;\n")


def test_a_named_query_needs_no_command(prompt):
    assert "assistant: four?" in prompt.ask("example env=sums example=0")
    assert "assistant: four?" in prompt.ask("example -P env=sums --parameter example=0")
    assert prompt.ask("history env=sum") == "Error: Unknown environment 'sum'. Did you mean 'sums'?\n"
    assert prompt.ask("hardest sums") == "Error: Expected PARAMETER=VALUE, found 'sums'\n"
    for misspelt in ("hardset", "hardset of all", "hardset -P env=sums"):
        assert prompt.ask(misspelt).startswith("Error: Unknown query 'hardset'. Did you mean 'hardest'?")
    assert "Parser Error" in prompt.ask("SELCT 1"), "no semicolon is waited for"


def test_ctrl_c_stops_the_query_a_search_and_what_is_typed_but_leaves_the_prompt(prompt):
    prompt.type(f"{ENDLESS};", ENTER)
    prompt.wait_for(lambda text: text.endswith("b;"))
    wait_until_busy(prompt.process.pid)
    prompt.type(CTRL_C)
    prompt.wait_for(lambda text: text.endswith(f"Stopped.\n{PROMPT}"))
    prompt.type("SELECT 'not", CTRL_C)
    prompt.wait_for(lambda text: text.endswith(f"'not\n{PROMPT}"))
    prompt.ask("FROM leaderboard;")
    prompt.type(CTRL_R)
    prompt.wait_for(lambda text: "search" in text)
    prompt.type(CTRL_C)
    prompts = prompt.wait_for(lambda text: "search" not in text and text.endswith(PROMPT)).count(PROMPT)
    prompt.type(CTRL_C)
    prompt.wait_for(lambda text: text.endswith(PROMPT) and text.count(PROMPT) > prompts)
    assert "3" in prompt.ask("SELECT 1 + 2;")


def test_a_query_sees_what_was_published_meanwhile_and_is_there_the_next_time_for_its_owner_only(
    open_terminal, prompt, publish, environment
):
    assert "1 row in" in prompt.ask("FROM runs SELECT run_id;")
    publish(Path(environment["NIGHTJAR_WAREHOUSE"]), "second")
    answer = prompt.ask("FROM runs SELECT run_id;")
    assert "second" in answer
    assert "2 rows in" in answer
    prompt.type(CTRL_D)
    assert prompt.end() == 0
    history = Path(environment["NIGHTJAR_HOME"]) / "sql_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    again = open_terminal("sql").wait_until_it_asks()
    again.type(UP)
    again.wait_for(lambda text: text.endswith("FROM runs SELECT run_id;"))
    assert "second" in again.ask()


def test_dot_commands(prompt):
    assert re.search(r"^runs +a run: one environment", prompt.ask(".tables"), re.MULTILINE)
    assert re.match(r"leaderboard: .*\n.*avg_reward DOUBLE", prompt.ask(".schema leaderboard"))
    assert prompt.ask(".schema leaders").startswith("Error: Unknown table 'leaders'. Choose one of: leaderboard")
    assert re.search(r"^hardest +The hardest", prompt.ask(".queries"), re.MULTILINE)
    assert "FROM flips($a, $b)" in prompt.ask(".queries flips")
    assert prompt.ask(".format csv") == "Rows are printed as csv.\n"
    assert prompt.ask(".full on") == "All rows and whole cells are shown.\n"
    assert prompt.ask(".run example env=sums example=0").startswith("model,example_id,")
    assert prompt.ask(".timeout 0.2") == "The time limit of a query is 0.2 s.\n"
    assert prompt.ask(f"{ENDLESS};").startswith("Error: The query was stopped after 0.2 s.")
    assert prompt.ask(".help") == prompt.ask("help")
    prompt.type("SELECT run_id,", ENTER)
    prompt.wait_for(lambda text: text.endswith(HINT))
    assert prompt.ask(".timeout 5").endswith(
        "     ...> .timeout 5\nDiscarded, as its ';' is missing: SELECT run_id,\nThe time limit of a query is 5 s.\n"
    )
    prompt.type("SELECT run_id,", ENTER)
    prompt.wait_for(lambda text: text.endswith(HINT))
    prompt.type(".quit", ENTER)
    assert prompt.end() == 0
    assert "Discarded, as its ';' is missing: SELECT run_id," in prompt.text.rpartition(PROMPT)[2]


@pytest.mark.slow
def test_what_a_model_wrote_does_not_ring_the_bell(open_terminal):
    query = "SELECT completion->>'$[0].content' AS text FROM rollouts"
    shown = {"table": "\nfour?\n", "csv": "\nfour?\n", "markdown": "| four? |", "json": '"four\\u0007"'}
    terminals = {form: open_terminal("sql", query, "--format", form) for form in shown}
    for form, terminal in terminals.items():
        assert (terminal.end(), terminal.bells) == (0, 0)
        assert shown[form] in terminal.text
    terminal = open_terminal("sql", "FROM runs", "--format", "parquet")
    assert (terminal.end(), "--output" in terminal.text) == (2, True), "that is not for terminals"


def test_a_stdin_that_is_no_pipe_gets_what_there_is_to_ask(environment, fork):
    printed, _ = fork.nightjar("sql", env=environment, stdout=PIPE).communicate(timeout=SECONDS)
    assert "leaderboard: " in printed
    assert "Examples:" in printed


def test_statements_of_a_pipe_run_for_a_reader_that_soon_has_enough(environment):
    command = f"echo 'FROM range(100000);' | {sys.executable} -m nightjar sql | head -n 1"
    ended = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert ended.stdout == "range\n"
    assert "Traceback" not in ended.stderr


def test_ctrl_c_stops_a_query_that_was_typed_as_a_command(environment, fork):
    with fork.nightjar("sql", ENDLESS, env=environment, stderr=PIPE) as process:
        wait_until_busy(process.pid)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)
    assert "Traceback" not in said
    assert process.returncode not in {0, -signal.SIGKILL}
