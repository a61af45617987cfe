"""The README's commands work as written: each story in an empty folder, with the local model and no network."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^##? (?=[A-Z])", README, flags=re.MULTILINE)[1:])
STORIES = (
    "Nightjar", "Evaluate a model", "Schedule it", "Find out what got worse", "Write an environment",
    "Bring existing results",
)  # fmt: skip
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


def blocks(section, *languages):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stories")


@pytest.fixture(scope="module")
def told(run_stories, folder):
    """Runs all stories of one reader; returns the exit code, stdout and stderr of each.

    All but the demo start with the model. The database that the demo has made is the one of the scheduled night.
    """
    demo, model = blocks("Nightjar", "sh")
    home = f"export HOME='{folder}/home'\n"
    stories = {section: (home + model + "".join(blocks(section, "sh")), folder / section) for section in STORIES}
    stories["Nightjar"] = home + demo, folder / "Nightjar"
    for section in STORIES:
        for text in blocks(section, "python", "toml"):
            path = folder / section / text.split("\n", 1)[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        (folder / section / "logs").mkdir(parents=True)
    shutil.copy(INSPECT_LOG, folder / "Bring existing results/logs")
    (folder / "Bring existing results/sums.py").write_text(INSPECT_TASK)
    return run_stories(stories)


@pytest.fixture
def printed(told):
    """Returns what a story prints."""

    def printed(section):
        code, out, errors = told[section]
        assert code == 0, out + errors
        return out

    return printed


def shape(line):
    """Removes what may differ from a line of output: numbers, ids and the width of columns."""
    line = re.sub(r"\b[0-9a-f]{12}\b", "ID", line)
    return re.sub(r"[─ ]+", " ", re.sub(r"-?\d[\d.,]*", "0", line)).strip()


@pytest.mark.long
@pytest.mark.parametrize("section", ["Nightjar", "Schedule it", "Find out what got worse"])
def test_a_story_prints_what_the_readme_shows(printed, folder, section):
    lines = {shape(line) for line in printed(section).splitlines()}
    assert [line for block in blocks(section, "") for line in block.splitlines() if shape(line) not in lines] == []
    assert section != "Find out what got worse" or "<html" in (folder / section / "changes.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize(("section", "facts"), [
    ("Evaluate a model", ["400 of 400 scored", r"(?m)^local +0\.\d+ +0\.\d+ +400$"]),
    ("Write an environment", ["PASS", "3 of 3 scored", r"Avg reward\s+1\.0000", "4 passed"]),
    ("Bring existing results", ["6 of 6 scored", r"Paired by:\s+6 by question and answer"]),
])  # fmt: skip
def test_a_story_works(printed, section, facts):
    text = printed(section)
    assert [fact for fact in facts if not re.search(fact, text)] == []


def test_the_readme_is_short_and_its_flags_are_in_the_help():
    assert len(README.splitlines()) <= 150
    commands = " ".join(re.findall(r"nightjar eval run[^\n`]*", README))
    flags = re.findall(r"(?<![\w-])(--?[a-zA-Z][a-z-]*)", commands)
    shown = CliRunner().invoke(app, ["eval", "run", "--help"], env={"COLUMNS": "200"}).stdout
    assert flags
    assert [flag for flag in flags if flag not in shown] == []
