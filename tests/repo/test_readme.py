"""The README's commands work as written: each story in an empty folder, with the local model and no network."""

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^##? (?=[A-Z])", README, flags=re.MULTILINE)[1:])
INSPECT_LOG = ROOT / "tests/warehouse/inspect_logs/arithmetic.eval"
INSPECT_TASK = '''\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message


@task
def sums():
    """The questions of the log."""
    dataset = [Sample(input=f"What is {n} + 2?", target=str(n + 2)) for n in range(6)]
    return Task(dataset=dataset, solver=[system_message("Answer with a number."), generate()], scorer=match())
'''


def blocks(section: str, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


@pytest.fixture
def tell(run_commands: Callable[[str, Path], str], tmp_path: Path) -> Callable[[str], str]:
    """Writes the files of a story, runs its commands after the start of the model, and returns their stdout."""

    def run(section: str) -> str:
        for text in blocks(section, "python", "toml"):
            path = tmp_path / text.split("\n", 1)[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        *_, model = blocks("Nightjar", "sh")
        return run_commands(model + "".join(blocks(section, "sh")), tmp_path)

    return run


def assert_shown(section: str, printed: str) -> None:
    """Compares the output in the README with the printed one: numbers, ids and the width of columns may differ."""
    lines = {shape(line) for line in printed.splitlines()}
    assert [line for block in blocks(section, "") for line in block.splitlines() if shape(line) not in lines] == []


def shape(line: str) -> str:
    line = re.sub(r"\b[0-9a-f]{12}\b", "ID", line)
    return re.sub(r"[─ ]+", " ", re.sub(r"-?\d[\d.,]*", "0", line)).strip()


@pytest.mark.long
def test_the_demo_prints_the_summary_of_the_first_screen(
    run_commands: Callable[[str, Path], str], tmp_path: Path
) -> None:
    demo, _ = blocks("Nightjar", "sh")
    assert_shown("Nightjar", run_commands(demo, tmp_path))


@pytest.mark.long
def test_a_model_is_evaluated(tell: Callable[[str], str]) -> None:
    printed = tell("Evaluate a model")
    assert "400 of 400 scored" in printed
    assert re.search(r"^local +0\.\d+ +0\.\d+ +400$", printed, re.MULTILINE)


@pytest.mark.long
def test_a_suite_is_scheduled_and_its_first_night_is_accepted(tell: Callable[[str], str]) -> None:
    assert_shown("Schedule it", tell("Schedule it"))


@pytest.mark.long
def test_a_change_is_found(tell: Callable[[str], str], tmp_path: Path) -> None:
    section = "Find out what got worse"
    assert_shown(section, tell(section))
    assert "<html" in (tmp_path / "changes.html").read_text()


@pytest.mark.long
def test_an_environment_is_written(tell: Callable[[str], str]) -> None:
    printed = tell("Write an environment")
    for fact in ("PASS", "3 of 3 scored", "4 passed"):
        assert fact in printed
    assert re.search(r"Avg reward\s+1\.0000", printed)


@pytest.mark.long
def test_results_of_inspect_are_read_and_compared_with_a_new_run(tell: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    shutil.copy(INSPECT_LOG, tmp_path / "logs")
    (tmp_path / "sums.py").write_text(INSPECT_TASK)
    printed = tell("Bring existing results")
    assert "6 of 6 scored" in printed
    assert re.search(r"Paired by:\s+6 by question and answer", printed)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(
    "flag", re.findall(r"(?<![\w-])(--?[a-zA-Z][a-z-]*)", " ".join(re.findall(r"nightjar eval run[^\n`]*", README)))
)
def test_every_flag_of_the_readme_is_in_the_help(flag: str) -> None:
    assert flag in help_of_eval_run()


@cache
def help_of_eval_run() -> str:
    return CliRunner().invoke(app, ["eval", "run", "--help"], env={"COLUMNS": "200"}).stdout
