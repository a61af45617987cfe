"""What a run says that its model costs holds where the warehouse has no price of it."""

import json
import logging

import pytest

from nightjar.engine.runs import RunDirectory
from nightjar.warehouse import Warehouse

PRICED = {"input_price": 1_000.0, "output_price": 10_000.0}


@pytest.fixture
def run(tmp_path):
    from nightjar.evaluation import evaluate
    from nightjar.evaluation.config import parse_run_config
    from nightjar.model_server import ArithmeticSolver, ModelServer

    async def run(**fields):
        with ModelServer(ArithmeticSolver()) as server:
            told = {"env_id": "arithmetic", "model": "m", "base_url": server.url, "num_examples": 2, **fields}
            config = parse_run_config(told)
            return await evaluate(config, warehouse=Warehouse(tmp_path / "house"), output_dir=tmp_path / "outputs")

    return run


async def test_the_first_run_of_a_model_sets_its_price(run, tmp_path, caplog):
    ended = await run(**PRICED)
    house = Warehouse(tmp_path / "house")
    [(tokens_in, tokens_out, cost)] = house.query("SELECT input_tokens, output_tokens, cost FROM runs").rows
    assert cost == pytest.approx((1_000 * tokens_in + 10_000 * tokens_out) / 1e6)
    assert ended.cost == pytest.approx(cost)
    assert json.loads((ended.path / "metadata.json").read_bytes())["cost"] == ended.cost
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    await run(input_price=2.0)
    [said] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "price of 'm' is 1000 and 10000; the run's price is 2 and 0" in said
    assert house.query("SELECT input, output FROM prices").rows == [(1_000.0, 10_000.0)]


async def test_a_run_without_a_price_sets_none(run, tmp_path):
    ended = await run()
    assert ended.cost is None
    assert "cost" not in json.loads((ended.path / "metadata.json").read_bytes())
    assert Warehouse(tmp_path / "house").query("SELECT cost FROM runs").rows == [(None,)]


async def test_a_rescored_run_costs_nothing(run, tmp_path):
    from nightjar.evaluation import run_stages
    from nightjar.evaluation.loading import load_rescored

    paid = await run(**PRICED)
    house = Warehouse(tmp_path / "house")
    rescored = await run_stages(load_rescored(RunDirectory(paid.path)), house)
    assert rescored.cost == 0
    assert json.loads((rescored.path / "metadata.json").read_bytes())["cost"] == 0
    assert house.query("SELECT cost FROM runs WHERE rescored_from IS NOT NULL").rows == [(0,)]
