"""What is on the screen while runs go on, in 80 and in 200 columns, and in the styles of --tui and --debug."""

import io
import os
import pty
import re
import subprocess
import sys
import termios
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
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


def shown(runs, width, chosen=0, height=50, messages=None):
    """Returns what the view shows: on the full screen if there are messages."""
    from rich.console import Console

    from nightjar.cli.eval.live_view import frame, full_screen

    console = Console(width=width, height=height, record=True, file=io.StringIO(), force_terminal=True)
    view = frame(console, runs, chosen) if messages is None else full_screen(console, runs, chosen, messages)
    console.print(view)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 200])
def test_one_run_in_detail(width):
    text = shown([a_run("arithmetic")], width)
    for part in ("100 of 400 scored (100 examples × 4), 3 failed", "0.7500", "0 in flight of 16",
                 "120 sent, 4 refused, 9 again", "1,000 in, 200 out · 1,200 of 4,000 tokens",
                 f"3 × InternalServerError: {MESSAGE}"):  # fmt: skip
        assert part in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 200])
def test_of_several_an_overview_and_one_in_detail(width):
    names = ["first", "second-with-a-name-that-is-longer-than-its-place-on-eighty-columns", "third"]
    lines = shown([a_run(name) for name in names], width, chosen=2).splitlines()
    assert lines[0].startswith("0 ended, 3 in progress · 309 of 1,200 rollouts done")
    assert [line.split()[0][:6] for line in lines[2:5]] == ["first", "second", "third"]
    assert re.match(r"second-\S*…\S*columns ", lines[3]), "the middle of a long name is left out"
    assert [line.count("100/400") for line in lines[2:5]] == [1, 1, 1]
    assert lines[5:7] == ["", "third · run 0123456789ab"]
    assert max(map(len, lines)) <= min(width, 100), "a view that is not too wide for a terminal that becomes narrower"


@pytest.mark.parametrize("height", [6, 10, 24])
def test_an_overview_of_many_runs_fits_the_screen_and_shows_the_runs_in_progress(height):
    runs = [a_run(f"done-{number}") for number in range(30)]
    for run in runs:
        run.metadata.finished_at, run.metadata.status = datetime.now(UTC), "completed"
    runs += [a_run(f"going-{number}") for number in range(30)]
    lines = shown(runs, 80, chosen=44, height=height).splitlines()
    assert len(lines) == height - 1
    rows = [line.split()[0] for line in lines if line.startswith(("done-", "going-")) and "·" not in line]
    assert "going-14" in rows
    assert not any(row.startswith("done") for row in rows)
    assert f"… and {60 - len(rows)} more evaluations" in lines
    assert ("going-14 · run 0123456789ab" in lines) == (height == 24), "the detail, if there is room for it"


def test_the_full_screen_shows_messages_below_the_runs():
    messages = [f"line {n}" for n in range(100)]
    lines = shown([a_run("first"), a_run("second")], 80, height=24, messages=messages).splitlines()
    assert len(lines) == 24
    assert lines[-2].strip("│ ") == "line 99"


SUITE = """\
model = "m"
base_url = "{url}"
num_examples = 4
rollouts_per_example = 1
max_concurrent = 8
request_retries = 0
"""
TALKATIVE = """\
import sys

from nightjar.benchmarks import arithmetic


def load_environment():
    def talk(answer):
        print("printed", file=sys.stderr)
        return 0.0

    env = arithmetic.load_environment()
    env.rubric.rubrics[-1].add_metric(talk)
    return env
"""


def on_a_terminal(*flags, cwd, columns=80, faults=None, code=0):
    """Runs ``nightjar eval run`` on a terminal of 24 rows; returns all that was written, and the lines it shows.

    The lines include those that have left the screen at its top, and none of the terminal's other screen.
    """
    with ModelServer(ArithmeticSolver(), faults=faults or Faults(latency_ms=50)) as server:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        if (suite := cwd / "suite.toml").is_file():
            suite.write_text(suite.read_text().replace("{url}", server.url))
            what = ["suite.toml"]
        else:
            what = ["arithmetic", "-m", "m", "-b", server.url, "-n", "60", "-r", "1", "-c", "4"]
        command = [sys.executable, "-P", "-m", "nightjar", "eval", "run", *what, "--direct", *flags]
        env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        env |= {"TERM": "xterm", "NIGHTJAR_HOME": str(cwd / "home")}
        process = subprocess.Popen(command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        written = b""
        try:
            while data := os.read(ours, 65536):
                written += data
        except OSError:  # Linux's word for the end
            pass
        os.close(ours)
        assert process.wait(60) == code
    import pyte

    screen = pyte.HistoryScreen(columns, 24, history=1_000)
    here = re.sub(rb"\x1b\[\?1049h.*\x1b\[\?1049l", b"", written, flags=re.DOTALL)
    pyte.ByteStream(screen).feed(here)
    left = ["".join(line[column].data for column in range(columns)) for line in screen.history.top]
    return written.decode(errors="replace"), [line.rstrip() for line in (*left, *screen.display)]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ([], [r"6\d?( of 60)? scored \(60 examples × 1\)", "in flight"]),
        (["--tui"], [r"\x1b\[\?1049h", "in flight"]),
        (["--debug"], [r"arithmetic \| m: +\d+%", "INFO Generated groups"]),
    ],
    ids=["live view", "full screen", "log lines and plain bars"],
)
def test_progress_on_a_terminal(tmp_path, flags, parts):
    written, lines = on_a_terminal(*flags, cwd=tmp_path)
    assert all(re.search(part, written) for part in parts)
    assert ("\x1b[?1049h" in written) == ("--tui" in flags), "the terminal's other screen"
    assert "60 of 60 scored" in "\n".join(lines)
    assert "in flight" not in "\n".join(lines), "the results take the place of the view"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("flags", "columns"), [([], 80), (["--tui"], 200)])
def test_a_suite_larger_than_the_screen_leaves_nothing_of_its_view_and_loses_no_line(tmp_path, flags, columns):
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "talkative.py").write_text(TALKATIVE)
    evaluations = "".join(f'[[eval]]\nenv_id = "talkative"\nname = "number-{number}"\n' for number in range(12))
    (tmp_path / "suite.toml").write_text(SUITE + evaluations)
    faults = Faults(latency_ms=200, rate_500=0.2)
    written, lines = on_a_terminal(*flags, cwd=tmp_path, columns=columns, faults=faults, code=1)
    assert "in progress" in written
    text = "\n".join(lines)
    assert not re.search("in progress|in flight|more evaluation|━", text)
    assert sum(line.startswith("Evaluation ") for line in lines) == 1, "the table of results"
    said = [line for line in lines if re.match(r"number-\d+: \w+, \d of 4 scored", line)]
    assert len(said) == 12
    scored = sum(int(re.search(r"(\d) of 4 scored", line)[1]) for line in said)
    assert lines.count("printed") == scored


def test_two_styles_at_once_are_refused():
    ended = CliRunner().invoke(app, "eval run arithmetic -u -d")
    assert (ended.exit_code, "--tui and --debug" in ended.stderr) == (2, True)
