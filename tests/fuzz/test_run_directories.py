"""Run directories that are damaged anywhere: an error that names the file, or the numbers that were there before."""

import asyncio
import random
import shutil
import time
from pathlib import Path

import pytest
from damage import CASES, damaged

from nightjar.errors import NightjarError
from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.slow
FILES = ("attempts.jsonl", "results.jsonl", "metadata.json", "config.json")
NUMBERS = """
SELECT * EXCLUDE (run_dir, published_at, version, metadata, config) FROM runs, cost WHERE cost.run_id = runs.run_id
"""
MOST_SECONDS = 10.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 18 rollouts of which some are wrong, some failed, and one is generated and not scored."""
    from nightjar.evaluation import evaluate

    folder = tmp_path_factory.mktemp("run")
    with ModelServer(ArithmeticSolver(error_rate=0.3, seed=2), faults=Faults(rate_500=0.2, seed=2)) as server:
        asked = RunConfig(env_id="arithmetic", model="m", base_url=server.url, num_examples=6, request_retries=0)
        outcome = asyncio.run(evaluate(asked, warehouse=Warehouse(folder / "house"), output_dir=folder))
    return outcome.path


@pytest.mark.long
def test_it_is_published_as_it_was_or_not_at_all(run: Path, tmp_path: Path) -> None:
    chance = random.Random(1)
    house = Warehouse(tmp_path / "before")
    house.publish(run)
    before = house.query(NUMBERS).rows
    refused = list[str]()
    for case in range(CASES):
        copy, house = shutil.copytree(run, tmp_path / f"{case}" / run.name), Warehouse(tmp_path / f"{case}" / "house")
        name = chance.choice(FILES)
        (copy / name).write_bytes(damaged((copy / name).read_bytes(), chance))
        begun = time.monotonic()
        try:
            house.publish(copy, tidies=False)
        except NightjarError as error:
            refused.append(str(error))
        else:
            assert house.query(NUMBERS).rows == before, (case, name)
        assert time.monotonic() - begun < MOST_SECONDS, case
        shutil.rmtree(tmp_path / f"{case}")
    assert len(refused) > CASES / 10
    assert [message for message in refused if "\n" in message] == []
