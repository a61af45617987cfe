"""Command lines that nobody meant: done, or refused in a line; no traceback, and nothing that takes long."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from damage import CASES
from typer import TyperException
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.errors import NightjarError
from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = pytest.mark.slow
MOST_SECONDS = 20.0
MEANT = [
    "eval run arithmetic -m m -b URL -n 2 -r 1 -c 4 --direct -S {} -a {} -t 9 -T 0.5 --request-retries 1 --tag a",
    "eval run arithmetic -m m -b URL -n 1 --direct -C answer -x {} --timeout-minutes 1 --max-shards 2 --json",
    "eval run arithmetic -m m -b URL -n 1 --direct --header X-Team:$TEAM --shuffle-seed 3 -o out --warehouse house",
    "eval repair RUN", "publish RUN --warehouse house", "env init my-env --kind tool", "env list --json",
    "warehouse info --warehouse house", "warehouse doctor --warehouse house --json",
    "warehouse export all.csv --warehouse house --format csv",
    "warehouse prices set m --input 0.4 --output 1.6 --warehouse house",
    "warehouse prune --older-than 180d --warehouse house --dry-run",
]  # fmt: skip
ODD = [
    "", " ", "-", "--", "-1", "0", "nan", "inf", "1e400", "9" * 400, "[/x]", "\x1b[31m", "\udcff", "\u202e",
    "é" * 200,
    "{", "[" * 3000, '{"a":' * 2000 + "1" + "}" * 2000, "null", "../..", "/dev/null/x", "/dev/full", "$HOME", "%s",
    "--no-such", "-Z", "a=b", "arithmetic@9.9", "owner/arithmetic", "x" * 300, "s3://", "block:x", "sha256:0", "{0}",
]  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ModelServer(ArithmeticSolver()) as server:
        yield server.url


def mistyped(words: list[str], chance: random.Random) -> list[str]:
    """Returns a command line with one to three mistakes behind the names of the command."""
    words = list(words)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(2, len(words) + 1)
        match chance.randrange(4):
            case 0 if place < len(words):
                words[place] = chance.choice(ODD)
            case 1 if place < len(words):
                del words[place]
            case 2:
                words.insert(place, chance.choice(words[2:] or ODD))
            case _:
                words.insert(place, chance.choice(ODD))
    return words


def test_a_command_line_is_done_or_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, runner = random.Random(7), CliRunner()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NIGHTJAR_MEMORY_LIMIT", "none")
    for case in range(CASES):
        meant = chance.choice(MEANT).replace("URL", url).replace("RUN", "out/evals/arithmetic--m/run")
        words = mistyped(meant.split(), chance)
        begun = time.monotonic()
        ended = runner.invoke(app, words, standalone_mode=False)
        expected = NightjarError | TyperException | SystemExit
        is_expected = ended.exception is None or isinstance(ended.exception, expected)
        if not is_expected:
            raise AssertionError(case, words) from ended.exception
        assert time.monotonic() - begun < MOST_SECONDS, (case, words)
