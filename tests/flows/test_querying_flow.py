"""The flow ``query`` on a real Prefect server: what it returns, and the artifact that it leaves."""

import json

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(autouse=True)
def warehouse(own_folder, run_writer):
    told = {"env_id": "sums", "model": "m", "status": "completed", "avg_reward": 0.75, "stderr": None, "rollouts": 1}
    told |= {"scored": 1, "failed": 0, "coverage": 1.0}
    run_dir = run_writer.write(own_folder / "run", [run_writer.rollout(0, 0, 0.75)], **told)
    Warehouse("outputs/warehouse").publish(run_dir)


@pytest.fixture
def query(prefect_server):
    from nightjar.flows.querying import query

    return query


async def test_a_named_query_creates_a_table_artifact(query, in_process):
    assert await query("leaderboard", {"env": "sums"}) == 1
    left = await in_process.artifact("query-leaderboard")
    [row] = json.loads(left.data)
    assert (row["env_id"], row["model"], row["avg_reward"], row["stderr"]) == ("sums", "m", 0.75, None)
    assert left.description.startswith("1 rows\n\n```sql\n-- Who leads in each environment")


async def test_long_answers_are_cut_and_counted_and_the_run_is_named_after_its_query(query, in_process):
    asked = "SELECT\n  repeat('x', 300) AS text, 'nan'::DOUBLE AS nan, [1] AS list FROM range(1500)"
    state = await query(asked, return_state=True)
    assert await state.aresult() == 1500
    left = await in_process.artifact("query")
    rows = json.loads(left.data)
    assert len(rows) == 1000
    assert rows[0] == {"text": "x" * 200 + "…", "nan": None, "list": "[1]"}
    assert left.description.startswith("the first 1,000 of 1,500 rows")
    name = (await in_process.read(state.state_details.flow_run_id)).name
    assert name.startswith("SELECT repeat('x', 300) AS text")


async def test_a_refused_statement_and_a_misspelt_name_fail_the_run(query):
    for sql, parameters, reason in (
        ("DROP TABLE runs", {}, "DROP"),
        ("leaderboard", {"env": "sum"}, "'sum'.*'sums'"),
        ("FROM pass_at_k WHERE run_id = $run", {"run": "run"}, "'run'.*'run-1'"),
    ):
        with pytest.raises(WarehouseError, match=reason):
            await query(sql, parameters)


def test_the_deployment_offers_a_form_with_described_flat_fields(services):
    schema = services.call("GET", "/deployments/name/query/query")["parameter_openapi_schema"]
    fields = schema["properties"]
    types = {"sql": "string", "parameters": "object", "warehouse": "string", "timeout_seconds": "number"}
    assert {name: field["type"] for name, field in fields.items()} == types
    assert all(field["description"] for field in fields.values())
