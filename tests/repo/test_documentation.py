"""Every page of docs/ says what it is for, and its commands exist; those that need nothing else also run.

A block of commands that needs more than a local model says so in its first line, which the site shows::

    ```sh needs="an API key"
"""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from drawing import drawn
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
NAMED = {
    "RUN_DIR": "outputs/evals/arithmetic--local/$1", "RUN": "$1", "6b0e1f2a": "$1", "9f8e7d6c": "$2",
    "./eval_results": "outputs/evals", "env=gsm8k": "env=arithmetic",
}  # fmt: skip
"""What the names of the pages are here; the shell has the names of two runs."""


def read(page):
    return (DOCS / page).read_text("utf-8")


def scripts(page):
    """Returns the blocks of a page that need nothing else."""
    text = ANSWERED.sub("", read(page))
    return [match["script"] for match in BLOCK.finditer(text) if "needs=" not in match["mark"]]


def test_every_page_begins_with_what_its_reader_can_do():
    beginning = re.compile(r"# .*\n\nAfter (this page|these \w+ pages), ")
    assert [page for page in PAGES if not beginning.match(read(page))] == []


def test_every_command_of_a_page_exists_with_its_flags():
    found = {page: [problem for command in commands_of(page) for problem in problems(command)] for page in PAGES}
    assert found == {page: [] for page in PAGES}


@pytest.mark.long
def test_the_commands_of_a_page_run_in_its_order(run_stories, tmp_path):
    """All pages of start/, and a sample of the others."""
    pages = [page for page in PAGES if scripts(page)]
    first = [page for page in pages if page.startswith("start/")]
    others = [page for page in pages if page not in first]
    command = "nightjar eval run arithmetic -m local -b http://127.0.0.1:8000/v1 -n 20 -r 2"
    stories = {"stored": (f"{MODELS[8000]}\n{command}\n{command} --seed 2", tmp_path)}
    for page in [*first, *drawn(others, 4)]:
        folder = tmp_path / page
        folder.mkdir(parents=True)
        for name, text in files_of(page):
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_text(text)
        commands = replaced("\n".join(scripts(page)), NAMED)
        models = [start for port, start in MODELS.items() if f":{port}" in read(page) and start not in commands]
        stored = f"cp -r {tmp_path}/outputs .\nset -- $(ls outputs/evals/arithmetic--local)"
        stories[page] = "\n".join([stored, *models, commands]), folder
    failed = {page: ended for page, ended in run_stories(stories).items() if ended[0] != 0}
    assert failed == {}


def replaced(text, named):
    return re.sub("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in named), lambda match: named[match[0]], text)


def files_of(page):
    """Yields the files that a page says to save: ``Save this as `NAME```, followed by the text."""
    yield from re.findall(r"[Ss]ave this as `([^`]+)`.*?```\w+\n(.*?)```", read(page), re.DOTALL)
    if "`configs/endpoints.toml`:" in read(page):
        yield "configs/endpoints.toml", re.findall(r"```toml\n(.*?)```", read(page), re.DOTALL)[0]


def commands_of(page):
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


def joined(script):
    return script.replace("\\\n", " ")


def problems(words):
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
def flags_of(name):
    command = _load(name) if name else get_command(app)
    own = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    return {*own, "--help", "-h"}
