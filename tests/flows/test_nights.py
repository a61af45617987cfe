"""Nights of a suite on a real server with a real worker: begun again, piled up, cancelled, told of."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from waiting import until

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

SUITE = """\
model = "at-night"
api_base_url = "{url}"
num_examples = 10
rollouts_per_example = 1
request_retries = 0
{more}

[[eval]]
env_id = "arithmetic"

[[eval]]
env_id = "arithmetic"
name = "large"
[eval.env_args]
largest = 999
"""


def write_suite(folder, server, name, more=""):
    (folder / f"{name}.toml").write_text(SUITE.format(url=server.url, more=more))
    return f"{name}.toml"


def nights(services, suite):
    return json.loads(services.run("nights", "--suite", suite, "--json").stdout)


def evaluations_of(services, suite):
    """Returns the flow runs of the evaluations of a suite's nights."""
    chosen = {"flows": {"name": {"any_": ["evaluate"]}}, "flow_runs": {"tags": {"all_": [f"suite:{suite}"]}}}
    return services.call("POST", "/flow_runs/filter", chosen)


async def test_a_restarted_night_runs_only_what_is_missing(services, run_deployed):
    with ModelServer(ArithmeticSolver(), faults=Faults(rate_500=0.5, seed=3)) as server:
        suite = write_suite(services.folder, server, "failing")
        asked = {"suite": suite, "night": "2026-11-20"}
        state = (await run_deployed("benchmark/nightly-benchmark", **asked))["state"]
        answered = server.stats().answered
    [night] = nights(services, "failing")
    assert night["verdict"] == "incomplete"
    assert (state["type"], state["name"], state["message"]) == ("FAILED", "Incomplete", night["line"])
    children = evaluations_of(services, "failing")
    assert {each["name"] for each in children} == {
        "failing 2026-11-20 · arithmetic · at-night", "failing 2026-11-20 · large · at-night",
    }  # fmt: skip
    assert all({"suite:failing", "env:arithmetic", "model:at-night"} <= {*each["tags"]} for each in children)

    with ModelServer(ArithmeticSolver(), port=server.port) as server:
        two = await asyncio.gather(*(run_deployed("benchmark/nightly-benchmark", **asked) for _ in range(2)))
        assert [each["state_type"] for each in two] == ["COMPLETED", "COMPLETED"]
        assert server.stats().answered == 20 - answered
    [night] = nights(services, "failing")
    assert (night["verdict"], [each["status"] for each in night["evaluations"]]) == ("accepted", ["completed"] * 2)
    asked = services.run("sql", "SELECT count(*) FROM runs WHERE suite = 'failing'", "--format", "csv")
    assert asked.stdout.split() == ["count_star()", "2"]


def test_of_several_due_nights_only_the_last_runs(services):
    deployment = services.call("GET", "/deployments/name/benchmark/nightly-benchmark")
    begin = datetime.now(UTC) + timedelta(seconds=12)  # time for the scheduler to make all three
    three_times = f"DTSTART:{begin:%Y%m%dT%H%M%SZ}\nRRULE:FREQ=SECONDLY;INTERVAL=1;COUNT=3"
    with ModelServer(ArithmeticSolver()) as server:
        new = {"schedule": {"rrule": three_times, "timezone": "UTC"}}
        new["parameters"] = {"suite": write_suite(services.folder, server, "piled"), "in_place": True}
        services.call("PATCH", "/work_pools/nightjar", {"is_paused": True})
        try:
            [made] = services.call("POST", f"/deployments/{deployment['id']}/schedules", [new])
            runs = [each["id"] for each in services.wait_for_runs(made["id"], 3)]
            time.sleep(max(0.0, (begin - datetime.now(UTC)).total_seconds() + 2.5))
        finally:
            services.call("PATCH", "/work_pools/nightjar", {"is_paused": False})
        assert [services.end_of(each) for each in runs] == ["CANCELLED", "CANCELLED", "COMPLETED"]
        assert server.stats().answered == 20
    states = [services.flow_run(each)["state"] for each in runs]
    assert [state["name"] for state in states] == ["Skipped", "Skipped", "Completed"]
    assert "skipped: a later night was due" in states[0]["message"]
    dates = {f"{begin + timedelta(seconds=late):%Y-%m-%d}" for late in range(3)}  # two at midnight
    last, *skipped = nights(services, "piled")
    assert {each["night"] for each in (last, *skipped)} == dates
    assert (last["verdict"], [each["verdict"] for each in skipped]) == ("accepted", ["skipped"] * (len(dates) - 1))


def begun_runs(services):
    """Returns the run directories in which a rollout has ended."""
    return {path.parent for path in services.folder.glob("outputs/evals/*/*/attempts.jsonl") if path.stat().st_size}


def test_cancelling_a_night_cancels_its_evaluations(services):
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=2_000)) as server:
        suite = write_suite(services.folder, server, "cancelled", "max_concurrent = 1")
        known = begun_runs(services)
        begun = services.start("benchmark/nightly-benchmark", {"suite": suite, "night": "2026-11-20"})
        until(lambda: len(begun_runs(services) - known) >= 2, told=services.log)
        services.cancel(begun)
        assert services.end_of(begun) == "CANCELLED"
        answered = server.stats().answered
        children = evaluations_of(services, "cancelled")
        assert [each["state_type"] for each in children] == ["CANCELLED"] * 2
        assert answered < 20
        [night] = nights(services, "cancelled")
        assert night["verdict"] == "incomplete"


async def test_deploy_shows_its_changes_and_installs_notifications(services, http_server, run_deployed):
    heard = []
    hook = http_server(lambda _, body: heard.append(json.loads(body)) or (200, b"", {}))
    with ModelServer(ArithmeticSolver()) as server:
        suite = write_suite(services.folder, server, "told", "max_total_tokens = 1000000")
        told = {"name": "team", "method": "POST", "url": hook, "json_data": {"text": "{{subject}} | {{body}}"}}
        services.save_block("team", "custom-webhook", told)
        zone = ["--time-zone", "Europe/Berlin"]
        command = ["deploy", suite, "--cron", "0 2 * * *", *zone, "--notify", "custom-webhook/team"]
        refused = services.run(*command).stderr
        assert refused.startswith("Error: Nothing was changed")
        assert refused.endswith("--yes\n")
        done = services.run(*command, "--yes")
        assert "+ deployment benchmark/told\n" in done.stdout
        assert "+ schedule 'told' of benchmark/told\n    cron 0 2 * * *, Europe/Berlin\n" in done.stdout
        assert done.stdout.count("+ automation") == 3
        again = services.run(*command)
        assert (again.returncode, again.stderr) == (0, "Nothing changes.\n")
        (services.folder / "told.yaml").write_text("version: 1\nbaseline: {accepted_nights: 7}\n")
        more = ["--upkeep-cron", "0 5 * * 0", "--gate", "told.yaml"]
        moved = services.run("deploy", suite, "--cron", "0 3 * * *", *zone, *more, "--yes")
        assert "+ schedule 'upkeep' of upkeep/upkeep\n    cron 0 5 * * 0, Europe/Berlin\n" in moved.stdout
        assert "cron 0 2 * * *, Europe/Berlin → cron 0 3 * * *, Europe/Berlin" in moved.stdout
        assert (await run_deployed("benchmark/told", night="2026-11-20"))["state_type"] == "COMPLETED"
        [said] = until(lambda: [each["text"] for each in heard if "told" in each["text"]])
    assert said.startswith("told 2026-11-20: accepted | told 2026-11-20 accepted: 2 of 2 evaluations complete")
    assert "; gate INCONCLUSIVE: 2 of 2 benchmarks undecided: arithmetic, large." in said


@pytest.fixture
def benchmark(prefect_server):
    from nightjar.flows.nights import benchmark

    return benchmark


async def test_a_budget_limits_the_whole_night_in_one_process(benchmark, own_folder):
    with ModelServer(ArithmeticSolver()) as server:
        suite = write_suite(own_folder, server, "thrifty", "max_total_tokens = 300\nmax_concurrent = 1")
        state = await benchmark(suite, night="2026-11-20", return_state=True)
        assert state.name == "Incomplete"
        spent = server.stats().answered
        assert 0 < spent < 20
        richer = write_suite(own_folder, server, "thrifty", "max_total_tokens = 1000000")
        state = await benchmark(richer, night="2026-11-20", return_state=True)
        assert state.name == "Completed"
        assert server.stats().answered == 20
    [night] = Warehouse("outputs/warehouse").nights()
    assert night.verdict == "accepted"


@pytest.mark.parametrize(("suite", "night", "said"), [
    ("none.toml", "2026-11-20", "none.toml"), ("there.toml", "20th", "'20th' is not the date of a night"),
])  # fmt: skip
async def test_a_wrong_suite_or_date_fails_the_night_with_the_reason(benchmark, own_folder, suite, night, said):
    (own_folder / "there.toml").write_text('[[eval]]\nenv_id = "arithmetic"\n')
    state = await benchmark(suite, night=night, return_state=True)
    assert state.is_failed()
    assert said in str(state.message)
