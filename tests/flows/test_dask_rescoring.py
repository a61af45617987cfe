"""A run scored again by workers of Dask is the run that one process scores."""

import json
from importlib.util import find_spec

import pytest

from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("prefect_dask") is None, reason="needs pip install 'nightjar-evals[dask]'"),
]

ENVIRONMENT = """
import nightjar as vf


async def short(state, completion):
    if state["example_id"] == 3:
        raise ValueError("not this one")
    return len(completion[-1]["content"]) / 10


def load_environment():
    rows = [{"question": f"What is {number} + {number} * {number}?", "answer": "-"} for number in range(11)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric([short]))
"""
OWN = {"run_id", "started_at", "finished_at", "date", "time", "time_ms", "digests", "digest", "published_at", "path"}


def rescored(services, *arguments):
    ended = services.run("eval", "rescore", *arguments, "--json")
    metadata = json.loads(ended.stdout)
    assert (ended.returncode, metadata["status"]) == (1, "incomplete"), ended.stderr
    lines = (services.folder / metadata["path"] / "results.jsonl").read_text("utf-8").splitlines()
    results = [{**json.loads(line), "timing": None} for line in lines]
    for row in results:
        (row["error"] or {}).pop("traceback", None)  # it depends on how the process was started
    return {name: value for name, value in metadata.items() if name not in OWN}, results


def test_two_workers_score_what_one_process_scores(services):
    environments = services.folder / "environments"
    environments.mkdir(exist_ok=True)
    (environments / "cubic.py").write_text(ENVIRONMENT)
    with ModelServer(ArithmeticSolver()) as server:
        size = ("-n", "-1", "-r", "2", "--direct", "--json")
        ran = services.run("eval", "run", "cubic", "-m", "dask", "-b", server.url, *size)
        run_id = json.loads(ran.stdout)["run_id"]
        assert rescored(services, run_id, "--dask", "2") == rescored(services, run_id)
        assert server.stats().received == 22
    found = services.run("sql", f"SELECT count(*), count(part_of) FROM runs WHERE rescored_from = '{run_id}'", "--json")
    assert [*json.loads(found.stdout)[0].values()] == [2, 0]
