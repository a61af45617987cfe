"""The questions in docs/reference/warehouse.md have the answers that stand below them.

They are about runs that are made here: the recorded answers of two models to GSM8K, whose scores are known, and two
nights of arithmetic. NIGHTJAR_REWRITE_ANSWERS=1 writes the answers into the page, for review.
"""

import asyncio
import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer, Recording
from nightjar.warehouse import Warehouse, resolve_warehouse

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"
PAGE = ROOT / "docs/reference/warehouse.md"
PAIR = re.compile(r"```sh\n((?:nightjar sql \"[^`]*?\"\n)+)```\n```\n(.*?)```", re.DOTALL)
RUN_IDS = {
    "1489c10aac35": "6b-finetuning", "af9fe193abad": "6b-verification", "d62f9b351acd": "first night",
    "694b616765b8": "second night",
}  # fmt: skip
"""The ids that the page names, and which run each is."""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Makes the runs; returns the folder they are in, and the id that each has here."""
    if not GSM8K.is_dir():
        pytest.skip("the recorded answers to GSM8K are not here")
    folder = tmp_path_factory.mktemp("house")
    ids = {}
    for model in ("6b-finetuning", "6b-verification"):
        with ModelServer(Recording.load(GSM8K / f"recorded-{model}.jsonl")) as server:
            dataset = {"dataset": str(GSM8K / "test.jsonl")}
            size = {"num_examples": -1, "rollouts_per_example": 1}
            ids[model] = make_run(folder, "gsm8k", server, model=model, env_args=dataset, **size)
    nights = {
        "first night": (ArithmeticSolver(error_rate=0.15, seed=1), Faults(rate_429=0.01)),
        "second night": (ArithmeticSolver(error_rate=0.25, seed=2), Faults(rate_500=0.01)),
    }
    for night, (solver, faults) in nights.items():
        with ModelServer(solver, faults=faults) as server:
            size = {"num_examples": 100, "rollouts_per_example": 4}
            size |= {"max_concurrent": 1, "max_retries": 9, "request_retries": 0}
            ids[night] = make_run(folder, "arithmetic", server, model="local", **size)
    prices = ["model,since,input,output", "local,2026-01-01,0.4,1.6"]
    prices += [f"{model},2026-01-01,0.05,0.1" for model in ("6b-finetuning", "6b-verification")]
    (folder / "outputs" / "warehouse" / "prices.csv").write_text("\n".join(prices) + "\n")
    return folder, ids


def make_run(folder, env_id, server: ModelServer, **config: Any):
    """Makes a run as ``nightjar eval run --direct`` does in that folder, and returns its id."""
    from nightjar.evaluation import evaluate

    with contextlib.chdir(folder):
        chosen = RunConfig(env_id=env_id, base_url=server.url, **config)
        outcome = asyncio.run(evaluate(chosen, warehouse=Warehouse(resolve_warehouse())))
    assert outcome.is_complete, outcome.reasons
    return outcome.run_id


def ask(folder, *arguments):
    with contextlib.chdir(folder):
        return CliRunner().invoke(app, ["sql", *arguments], env={"COLUMNS": "200"}, catch_exceptions=False).stdout


def answer(commands, folder, ids: dict[str, str]):
    """Runs the commands of a block, and returns what they print, with the ids that the pages name."""
    for named, run in RUN_IDS.items():
        commands = commands.replace(named, ids[run])
    printed = "\n".join(ask(folder, sql) for sql in re.findall(r'nightjar sql "(.*?)"\n', commands, re.DOTALL))
    for named, run in RUN_IDS.items():
        printed = printed.replace(ids[run], named)
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


@pytest.mark.long
def test_the_answers_are_those_of_the_page(house):
    text = PAGE.read_text()
    questions = PAIR.findall(text)
    assert len(questions) >= 5
    answers = {commands: answer(commands, *house) for commands, _ in questions}
    if os.environ.get("NIGHTJAR_REWRITE_ANSWERS"):
        rewritten = PAIR.sub(lambda pair: f"```sh\n{pair[1]}```\n```\n{answers[pair[1]]}```", text)
        PAGE.write_text(rewritten)
    assert dict(questions) == answers


def test_the_flips_are_those_of_the_recordings(house):
    def right(model) -> list[bool]:
        lines = (GSM8K / f"recorded-{model}.jsonl").read_text().splitlines()
        return [json.loads(line)["is_correct"] for line in lines]

    pairs = list(zip(right("6b-finetuning"), right("6b-verification"), strict=True))
    folder, ids = house
    runs = f"'{ids['6b-finetuning']}', '{ids['6b-verification']}'"
    counted = ask(folder, "--json", f"SELECT flip, count(*) AS examples FROM flips({runs}) GROUP BY flip")
    assert {row["flip"]: row["examples"] for row in json.loads(counted)} == {
        "fixed": pairs.count((False, True)),
        "broken": pairs.count((True, False)),
    }
