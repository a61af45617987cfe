"""Every page of docs/ says what it is for, and its commands exist; those that need nothing else also run.

A block of commands that needs more than a local model says so in its first line, which the site shows::

    ```sh needs="an API key"
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from nightjar.cli.app import COMMANDS, GROUPS, _load, app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(?:sh|bash)(?P<mark>[^\n]*)\n(?P<script>.*?)^```", re.MULTILINE | re.DOTALL)
"""A block of commands."""
ANSWERED = re.compile(r"```sh\n((?:nightjar sql \"[^`]*?\"\n)+)```\n```\n", re.DOTALL)
"""A question with its answer: test_questions.py asks it."""
INLINE = re.compile(r"(?<!`)`(nightjar [^`]+)`")
"""A command in a sentence or in a table."""
MODELS = {
    8000: "nightjar model-server --port 8000 --error-rate 0.2",
    8001: "nightjar model-server --port 8001 --answer Paris",
}
"""The model behind each port of the pages; a page may start it itself."""


def read(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def scripts(page: str) -> list[str]:
    """Returns the blocks of a page that need nothing else."""
    text = ANSWERED.sub("", read(page))
    return [match["script"] for match in BLOCK.finditer(text) if "needs=" not in match["mark"]]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_what_its_reader_can_do(page: str) -> None:
    title, first, *_ = read(page).split("\n\n")
    assert title.startswith("# ")
    assert re.match(r"After (this page|these \w+ pages), ", first)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_exists_with_its_flags(page: str) -> None:
    assert [problem for command in commands_of(page) for problem in problems(command)] == []


@pytest.fixture(scope="module")
def stored(
    run_commands: Callable[[str, Path], str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """A folder of outputs with two runs, and their ids."""
    folder = tmp_path_factory.mktemp("stored")
    command = "nightjar eval run arithmetic -m local -b http://127.0.0.1:8000/v1 -n 20 -r 2"
    run_commands(f"{MODELS[8000]}\n{command}\n{command} --seed 2", folder)
    return folder / "outputs", sorted(path.name for path in (folder / "outputs/evals/arithmetic--local").iterdir())


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if scripts(page)])
def test_the_commands_of_a_page_run_in_its_order(
    page: str, stored: tuple[Path, list[str]], run_commands: Callable[[str, Path], str], tmp_path: Path
) -> None:
    outputs, (first, second) = stored
    shutil.copytree(outputs, tmp_path / "outputs")
    for name, text in files_of(page):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    named = {
        "RUN_DIR": f"outputs/evals/arithmetic--local/{first}", "RUN": first, "6b0e1f2a": first, "9f8e7d6c": second,
        "./eval_results": "outputs/evals", "env=gsm8k": "env=arithmetic",
    }  # fmt: skip
    commands = replaced("\n".join(scripts(page)), named)
    models = [start for port, start in MODELS.items() if f":{port}" in read(page) and start not in commands]
    run_commands("\n".join([*models, commands]), tmp_path)


def replaced(text: str, named: dict[str, str]) -> str:
    return re.sub("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in named), lambda match: named[match[0]], text)


def files_of(page: str) -> Iterator[tuple[str, str]]:
    """Yields the files that a page says to save: ``Save this as `NAME```, followed by the text."""
    yield from re.findall(r"[Ss]ave this as `([^`]+)`.*?```\w+\n(.*?)```", read(page), re.DOTALL)
    if "`configs/endpoints.toml`:" in read(page):
        yield "configs/endpoints.toml", re.findall(r"```toml\n(.*?)```", read(page), re.DOTALL)[0]


def commands_of(page: str) -> Iterator[list[str]]:
    """Yields the commands of ``nightjar`` in blocks and in sentences, as words."""
    text = read(page)
    lines = [line for match in BLOCK.finditer(text) for line in joined(match["script"]).splitlines()]
    for line in [*lines, *INLINE.findall(text)]:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation mark that the next line closes
            continue
        if "nightjar" in words:
            yield words[words.index("nightjar") + 1 :]


def joined(script: str) -> str:
    return script.replace("\\\n", " ")


def problems(words: list[str]) -> list[str]:
    """Returns what is unknown in the words after ``nightjar``."""
    if not words or not re.match(r"[a-z-]", words[0]):
        return []
    name = words[0]
    if name.startswith("-"):
        return [] if name in flags_of("") else [name]
    if name not in {known.partition(" ")[0] for known in COMMANDS}:
        return [name]
    while words[1:] and f"{name} {words[1]}" in {*COMMANDS, *GROUPS}:
        name, words = f"{name} {words[1]}", words[1:]
    flags = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-zA-Z]", word)]
    return [f"{name} {flag}" for flag in flags if flag not in flags_of(name)]


@cache
def flags_of(name: str) -> set[str]:
    command = _load(name) if name else get_command(app)
    own = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    return {*own, "--help", "-h"}
