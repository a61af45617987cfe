"""What is on the screen while runs go on, in 80 and in 200 columns, and in the styles of --tui and --debug."""

import io
import os
import pty
import re
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.cli.eval.live import view
from nightjar.clients.pace import Pace
from nightjar.engine import Budget, Progress
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

MESSAGE = "Model 'm': Error code: 500 - The server had an error."


def a_run(name, **progress):
    budget = Budget(max_tokens=4000)
    budget.add(1000, 200)
    pace = Pace()
    pace.allow(16)
    made = Progress(total=400, scored=100, failed=3, requests=120, retries=9, refused=4, input_tokens=1000,
                    output_tokens=200, reward_sum=75.0, reward_count=100, last_failure=MESSAGE,
                    errors={"InternalServerError": (3, MESSAGE)}, **progress)  # fmt: skip
    metadata = SimpleNamespace(
        name=name, env_id="e", model="m", num_examples=100, rollouts_per_example=4, finished_at=None, status="running"
    )
    return SimpleNamespace(progress=made, metadata=metadata, run_id="0123456789ab", paces=lambda: [pace], budget=budget)


def shown(runs, width, chosen=0):
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
    console.print(view(runs, chosen))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 200])
def test_one_run_in_detail(width):
    text = shown([a_run("arithmetic")], width)
    for part in ("103/400 (100 examples × 4)", "0.7500", "0 in flight of 16", "120 sent, 4 refused, 9 again",
                 "1,000 in, 200 out · 1,200 of 4,000 tokens", f"3 × InternalServerError: {MESSAGE}"):  # fmt: skip
        assert squeezed(part) in squeezed(text)
    assert max(map(len, text.splitlines())) <= width


def squeezed(text):
    """Returns a text without spaces, line ends and borders, as it may have been folded."""
    return re.sub(r"[\s│]+", "", text)


@pytest.mark.parametrize("width", [80, 200])
def test_of_several_an_overview_and_one_in_detail(width):
    names = ["first", "second-with-a-name-that-is-longer-than-its-place-on-eighty-columns", "third"]
    text = shown([a_run(name) for name in names], width, chosen=2)
    assert all(name in squeezed(text) or name[:12] in text for name in names)
    assert len(re.findall("103/400", text)) == 4, "three rows, and the detail"
    assert re.search(r"─ third ─", text), "which is that of the third"
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def on_a_terminal(*flags, cwd):
    """Types ``nightjar eval run`` on a terminal of 80 columns; returns all that was written, and the last screen."""
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=50)) as server:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        command = [sys.executable, "-P", "-m", "nightjar", "eval", "run", "arithmetic", "-m", "m", "-b", server.url,
                   "-n", "60", "-r", "1", "-c", "4", "--direct", *flags]  # fmt: skip
        env = os.environ | {"COLUMNS": "80", "LINES": "24", "TERM": "xterm", "NIGHTJAR_HOME": str(cwd / "home")}
        process = subprocess.Popen(command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        written = b""
        try:
            while data := os.read(ours, 65536):
                written += data
        except OSError:  # Linux's word for the end
            pass
        os.close(ours)
        assert process.wait(60) == 0
    import pyte

    screen = pyte.Screen(80, 24)
    pyte.ByteStream(screen).feed(written)
    return written.decode(errors="replace"), "\n".join(screen.display)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ([], [r"60/60 \(60 examples × 1\)"]),
        (["--tui"], [r"\x1b\[\?1049h", "in flight"]),
        (["--debug"], [r"arithmetic \| m: +\d+%", "INFO Generated groups"]),
    ],
    ids=["live view", "full screen", "log lines and plain bars"],
)
def test_progress_on_a_terminal(tmp_path, flags, parts):
    written, screen = on_a_terminal(*flags, cwd=tmp_path)
    assert all(re.search(part, written + screen) for part in parts)
    assert ("\x1b[?1049h" in written) == ("--tui" in flags), "the terminal's other screen"
    assert "60 of 60 scored" in screen


def test_two_styles_at_once_are_refused():
    ended = CliRunner().invoke(app, ["eval", "run", "arithmetic", "-u", "-d"])
    assert (ended.exit_code, "--tui and --debug" in ended.stderr) == (2, True)
