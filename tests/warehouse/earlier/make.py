"""Writes a small warehouse, and the run directories that it was published from, into ``outputs-VERSION.zip``.

The archives beside this file were written by earlier releases: tests read them with the code of today. To add one,
run this with the Python of that release in an empty folder ``/evals``, and copy the archive here.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nightjar.config import RunConfig
from nightjar.testing import Answer, ArithmeticSolver, Faults, ModelServer, last_user_text
from nightjar.warehouse.storage.nights import Night, NightEvaluation
from nightjar.warehouse.storage.notes import NOTES, Note

from nightjar import __version__
from nightjar.evaluation import evaluate
from nightjar.warehouse import Warehouse

WAREHOUSE = Warehouse("outputs/warehouse")
QUESTIONS = Path("questions.jsonl")
APPLES = (2, 3, 5, 8, 13, 21)
POLICY = "version: 1\ndefaults: {max_drop: 0.5}\nbenchmarks: {arithmetic: {tier: critical}}\n"
MOMENT = datetime(2026, 11, 20, 2, tzinfo=UTC)


class Counter:
    """Counts the apples of a question; answers the first ``wrong`` questions wrongly, and refuses one."""

    def __init__(self, wrong):
        self._wrong = wrong

    def answer(self, messages):
        question = last_user_text(messages)
        apples = next(number for number in APPLES if f"has {number} apples" in question)
        if apples == APPLES[0]:
            return Answer(question=question, text="I'm sorry, I cannot help with that.")
        said = apples + 1 + (apples in APPLES[: self._wrong])
        return Answer(question=question, text=f"One more makes {said}.\n#### {said}")


def run(env_id, answerer, model, faults=None, **config):
    """Runs an evaluation and publishes it; returns its id."""
    with ModelServer(answerer, faults=faults or Faults()) as server:
        chosen = RunConfig(env_id=env_id, base_url=server.url, model=model, max_concurrent=1, **config)
        outcome = asyncio.run(evaluate(chosen, warehouse=WAREHOUSE))
    return outcome.run_id


def nightjar(*words):
    subprocess.run([sys.executable, "-m", "nightjar", *words], check=False)


def answers(ids):
    """Returns what the release answers about each relation: rows, with values as ``str`` writes them."""
    first, second = ids["first night"], ids["second night"]
    relations = {str(row[0]) for row in WAREHOUSE.catalog().rows} - {"prices"}
    asked = [*sorted(relations), f"pairs('{first}', '{second}')", f"flips('{first}', '{second}')"]
    results = {relation: WAREHOUSE.query(f"FROM {relation}") for relation in asked}
    return {
        relation: [dict(zip(result.columns, map(str, row), strict=True)) for row in result.rows]
        for relation, result in results.items()
    }


def make():
    lines = [{"question": f"Ada has {n} apples and buys one. How many?", "answer": f"#### {n + 1}"} for n in APPLES]
    QUESTIONS.write_text("".join(json.dumps(line) + "\n" for line in lines))
    dataset = {"dataset": str(QUESTIONS)}
    small = {"num_examples": -1, "rollouts_per_example": 1, "env_args": dataset}
    ids = {
        "6b-finetuning": run("gsm8k", Counter(4), "6b-finetuning", **small),
        "6b-verification": run("gsm8k", Counter(2), "6b-verification", **small),
    }
    night = {"num_examples": 6, "rollouts_per_example": 4, "max_retries": 9, "request_retries": 0}
    ids["first night"] = run(
        "arithmetic", ArithmeticSolver(error_rate=0.2, seed=1), "local", Faults(rate_429=0.1), **night
    )
    nightjar("warehouse", "compact")
    ids["second night"] = run(
        "arithmetic", ArithmeticSolver(error_rate=0.6, seed=2), "local", Faults(rate_500=0.1), **night
    )
    broken = {"num_examples": 4, "rollouts_per_example": 2, "max_retries": 0, "request_retries": 0, "suite": "broken"}
    ids["broken"] = run("arithmetic", ArithmeticSolver(seed=3), "fragile", Faults(rate_500=0.4, seed=5), **broken)
    nightjar("eval", "rescore", ids["second night"])
    nightjar("warehouse", "prices", "set", "local", "--input", "0.4", "--output", "1.6", "--since", "2026-01-01")
    Path("policy.yaml").write_text(POLICY)
    nightjar("gate", "--policy", "policy.yaml", "--record", ids["first night"], ids["second night"])
    nightjar("compare", "--record", ids["6b-finetuning"], ids["6b-verification"])
    for number, (name, change) in enumerate((("first night", "new"), ("second night", "worse"))):
        began = MOMENT + timedelta(days=number)
        told = NightEvaluation("arithmetic", change, "arithmetic", "local", ids[name], status="completed")
        verdict = "accepted" if change == "new" else "worse"
        WAREHOUSE.write_night(
            Night("nightly", f"{began:%Y-%m-%d}", verdict, "", began_at=began, ended_at=began, evaluations=[told])
        )
    written = datetime(2030, 1, 1, tzinfo=UTC)
    note = Note("n1", ids["second night"], 0, 0, "wrong grade", "ada", written, "It is right.", overruled_reward=1.0)
    WAREHOUSE.write_rows(NOTES, [note])
    Path("outputs/ids.json").write_text(json.dumps(ids, indent=2) + "\n")
    Path("outputs/answers.json").write_text(json.dumps(answers(ids), indent=1) + "\n")
    for path in (*Path("outputs").rglob("*.lock"), *Path("outputs").rglob("nightjar.duckdb")):
        path.unlink(missing_ok=True)
    shutil.make_archive(f"outputs-{__version__}", "zip", ".", "outputs")


if __name__ == "__main__":
    make()
