"""The flow ``evaluate`` on a real Prefect server, against a real HTTP server."""

import asyncio
import contextlib

import pytest
from waiting import until

from nightjar.model_server import ArithmeticSolver, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def finished(prefect_server, tmp_path_factory):
    """A flow run of 100 rollouts that has ended."""
    from in_process import new_flow_run, read, run_as

    from nightjar.warehouse.backend import open_store
    from nightjar.warehouse.pricing import ALWAYS, set_price
    from nightjar.warehouse.storage.records import Price

    async def run():
        flow_run = await new_flow_run(tags=["typed"])
        with ModelServer(ArithmeticSolver()) as server:
            size = {"num_examples": 50, "rollouts_per_example": 2}
            await run_as(flow_run, model="shown", base_url=server.url, tags=["nightly"], **size)
        return await read(flow_run.id)

    with contextlib.chdir(tmp_path_factory.mktemp("finished")):
        set_price(open_store("outputs/warehouse"), Price("shown", ALWAYS, 10_000.0, 10_000.0))
        return asyncio.run(run())


async def test_tasks_have_readable_names_are_few_and_form_a_chain(in_process, finished):
    found = await in_process.task_runs(finished.id, 3 + 2 * 5)  # 50 groups in blocks of 10
    names = {each.id: each.name.replace(" arithmetic", "") for each in found}
    before = {names[each.id]: {names[one.id] for ones in each.task_inputs.values() for one in ones} for each in found}
    blocks = [f"groups {first} to {first + 9}" for first in range(1, 51, 10)]
    assert before == {
        "load_env": set(), **{f"generate, {block}": {"load_env"} for block in blocks},
        **{f"score, {block}": {f"generate, {block}"} for block in blocks},
        "aggregate": {f"score, {block}" for block in blocks}, "publish": {"aggregate"},
    }  # fmt: skip
    assert all({"env:arithmetic", "model:shown"} <= {*each.tags} for each in found)  # a limit can hold them


async def test_a_flow_run_has_a_name_and_the_tags_of_user_environment_and_model(finished):
    assert finished.name == "arithmetic | shown"
    assert {*finished.tags} == {"typed", "nightly", "env:arithmetic", "model:shown"}


async def test_the_ui_shows_progress_and_the_results_on_one_page(in_process, finished):
    assert (await in_process.artifact("progress-arithmetic-shown")).data == 100.0
    title, *lines = (await in_process.artifact("results-arithmetic-shown")).data.splitlines()
    assert title == "# Reward 1.0000 (standard error 0.0000)"
    expected = ("scored | 100 of 100 rollouts (100.0%)", "tokens | 1,400 in, 1,100 out",
                "cost | 25, failed attempts included", "correct_answer | 1", "2 | 1.000 | 1.000")  # fmt: skip
    assert {*lines} >= {f"| {line} |" for line in expected}


def test_nightjars_log_is_in_the_log_of_the_run(services, finished):
    until(lambda: "100 of 100 rollouts scored" in str(services.log_of(str(finished.id))))
    assert "Completed()" not in str(services.log_of(str(finished.id)))  # of each task, as its state shows


async def test_a_refusing_endpoint_stops_the_run_with_the_providers_message(in_process):
    with ModelServer(ArithmeticSolver(), only_model="right") as server:
        asked = {"model": "wrong", "base_url": server.url, "num_examples": 200}
        state = await in_process.evaluate(env_id="arithmetic", **asked, return_state=True)
        assert state.is_failed()
        assert "The model 'wrong' does not exist" in state.message
        assert server.stats().received < 60
    assert Warehouse("outputs/warehouse").query("SELECT status FROM runs").rows == [("failed",)]
