"""``nightjar up``, runs that a worker runs, on Retry and by a schedule, ``nightjar down``: real processes."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = pytest.mark.long
SECRET = "sk-planted-0123456789"


def test_a_second_start_is_refused(services):
    again = services.run("up", "--detach")
    assert again.returncode == 1
    assert "nightjar down" in again.stderr


def test_eval_run_is_a_flow_run(services):
    import httpx

    with ModelServer(ArithmeticSolver()) as server:
        ran = services.run("eval", "run", "arithmetic", "-m", "typed", "-b", server.url, "-n", "3", "--json")
    assert ran.returncode == 0, ran.stderr
    metadata = json.loads(ran.stdout)
    flow_run = services.flow_run(metadata["flow_run_id"])
    assert flow_run["state_type"] == "COMPLETED"
    assert flow_run["name"] == "arithmetic | typed"
    page = json.loads(services.run("status", "--json").stdout)["view_url"] + f"runs/{metadata['run_id']}"
    assert f"]({page})" in services.artifact(flow_run["id"], "results-%")
    assert f"/runs/flow-run/{flow_run['id']}" in httpx.get(page, timeout=60).text


async def test_the_form_offers_environments_accepts_others_and_refuses_wrong_parameters(services, run_deployed):
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    offered, _ = deployment["parameter_openapi_schema"]["properties"]["env_id"]["anyOf"]
    assert {"arithmetic", "gsm8k"} <= {*offered["enum"]}
    for wrong, named in (
        ({}, "'env_id'"), ({"env_id": ""}, "'env_id'"), ({"env_id": "gsm8k", "num_examples": "abc"}, "'num_examples'"),
        ({"env_id": "gsm8k", "provider": "opnai"}, "'provider'"), ({"env_id": "gsm8k", "nun_examples": 5}, "nun_examp"),
        ({"env_id": "gsm8k", "env_args": {"api_key": SECRET}}, "env_args"),
        ({"env_id": "gsm8k", "env_args": {"judge": {"note": SECRET}}}, "env_args"),
        ({"env_id": "gsm8k", "api_key_var": SECRET}, "api_key_var"),
    ):  # fmt: skip
        refused = services.create("evaluate", wrong)
        assert refused.status_code == 409
        assert named in refused.text or "secret" in refused.text
    assert SECRET not in services.dump()
    ended = await run_deployed("evaluate", env_id="ada/made-up@1.2", provider="local")
    assert ended["state_type"] == "FAILED"
    assert "'ada/made-up@1.2'" in ended["state"]["message"]


def test_a_schedule_starts_runs_and_wrong_parameters_fail_the_first_one(services):
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    schedules = f"/deployments/{deployment['id']}/schedules"
    due = datetime.now(UTC) + timedelta(seconds=4)
    every_minute = {"interval": 60, "anchor_date": due.isoformat()}
    with ModelServer(ArithmeticSolver()) as server:
        parameters = {"env_id": "arithmetic", "model": "nightly", "base_url": server.url, "num_examples": 2}
        wrong = {"model": "nightly", "num_examples": "abc"}
        new = [{"schedule": every_minute, "parameters": given} for given in (parameters, wrong)]
        made, lacking = services.call("POST", schedules, new)
        fired, failed = (services.wait_for_runs(each["id"], 1)[0] for each in (made, lacking))
        assert services.end_of(fired["id"]) == "COMPLETED"
        assert services.end_of(failed["id"]) == "FAILED"
        for each in (made, lacking):
            services.call("DELETE", f"{schedules}/{each['id']}")
        assert server.stats().answered == 6
    message = services.flow_run(failed["id"])["state"]["message"]
    assert {
        "env_id: Field required",
        "num_examples: Input should be a valid integer, unable to parse string as an integer",
    } <= {*message.splitlines()}
    assert fired["auto_scheduled"]
    assert (datetime.fromisoformat(fired["expected_start_time"]) - due).total_seconds() % 60 == 0
