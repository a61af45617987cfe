"""Retrying what failed: ``nightjar eval retry`` and the flow ``retry-failed``, runs with and without a deployment."""

import json
from pathlib import Path

import pytest

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

BROKEN = Faults(rate_429=0.3, rate_500=0.2, seed=2)


@pytest.fixture(scope="module")
def failed(services):
    """Two flow runs of the deployment, of suites "nights" and "others", with failed rollouts of two kinds.

    The value of each is its id and its endpoint's port.
    """
    with (
        ModelServer(ArithmeticSolver(), faults=BROKEN) as first,
        ModelServer(ArithmeticSolver(), faults=BROKEN) as other,
    ):
        runs = {}
        for suite, server in (("nights", first), ("others", other)):
            given = {"env_id": "arithmetic", "model": suite, "base_url": server.url, "num_examples": 15}
            runs[suite] = services.start("evaluate", {**given, "suite": suite, "request_retries": 0}), server.port
        assert [services.end_of(flow_run) for flow_run, _ in runs.values()] == ["FAILED"] * 2
    return runs


def errors(services, model):
    """Returns the errors of the rollouts of a model's one run."""
    [path] = (services.folder / f"outputs/evals/arithmetic--{model}").glob("*/results.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["error"]["error_chain_repr"].rpartition(" -> ")[2] for row in rows if row["error"]]


async def test_the_runs_of_a_suite_are_retried_together_and_its_night_is_judged_again(services, failed, run_deployed):
    (chosen, port), (other, _) = failed["nights"], failed["others"]
    evaluation = "[[eval]]\nenv_id = 'arithmetic'\nmodel = 'in-place'\nnum_examples = 10\nrequest_retries = 0\n"
    with ModelServer(ArithmeticSolver(), faults=BROKEN) as begun:
        (services.folder / "nights.toml").write_text(f"{evaluation}base_url = '{begun.url}'\n")
        given = {"suite": "nights.toml", "night": "2026-11-20", "in_place": True}
        started = await run_deployed("benchmark/nightly-benchmark", **given)
        assert started["state_type"] == "FAILED"
    assert verdict(services) == "incomplete"
    with (
        ModelServer(ArithmeticSolver(), port=port, faults=Faults(latency_ms=3000)),
        ModelServer(ArithmeticSolver(), port=begun.port),
    ):
        first = services.start("retry-failed", {"suite": "nights", "error_class": "rate limit"})
        services.wait_for(first, "RUNNING")
        assert (await run_deployed("retry-failed"))["state_name"] == "Skipped"
        services.end_of(first)
    ended = services.flow_run(first)
    assert ended["state"]["message"] == "2 of 2 retried runs are complete now"
    assert errors(services, "nights") == errors(services, "in-place") == []
    assert verdict(services) == "accepted"
    assert services.end_of(started["id"]) == "COMPLETED", "the night was completed later"
    assert services.flow_run(chosen)["state_type"] == "COMPLETED"
    assert services.flow_run(other)["state_type"] == "FAILED"
    rows = json.loads(services.artifact(first, "retry-failed"))
    assert [(row["run"], row["was"], row["is"]) for row in rows] == [
        (services.flow_run(chosen)["name"], "Failed", "Completed"),
        ("nights 2026-11-20 · arithmetic · in-place", "Failed", "Completed"),
    ]
    nothing = await run_deployed("retry-failed", suite="nights", error_class="timeout")
    assert nothing["state_type"] == "COMPLETED"
    assert "nothing was retried" in nothing["state"]["message"]


def test_a_worker_retries_the_chosen_failures_and_then_the_rest(services, failed):
    flow_run, port = failed["others"]
    before = errors(services, "others")
    kept = [error for error in before if error != "RateLimitError"]
    assert 0 < len(kept) < len(before)
    run_id = flow_run.replace("-", "")[-12:]
    for condition, said in (("nocolumn = 1", 'column "nocolumn" not found'), ("error = 'NoSuch'", "No failed rollout")):
        refused = services.run("eval", "retry", flow_run, "--where", condition)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert said in " ".join(refused.stderr.split())
    with ModelServer(ArithmeticSolver(), port=port, faults=Faults(latency_ms=2000)) as server:
        retried = services.run("eval", "retry", run_id, "--where", "error = 'RateLimitError'", "--json")
        assert retried.returncode == 0, retried.stderr
        assert json.loads(retried.stdout)["flow_run_id"] == flow_run
        again = services.run("eval", "retry", flow_run)
        assert services.end_of(flow_run) == "FAILED"
        assert (errors(services, "others"), server.stats().answered) == (kept, len(before) - len(kept))
        assert again.returncode == 1
        assert "A run in progress is not retried" in again.stderr

        assert "where" not in services.flow_run(flow_run)["parameters"]
        retried = services.run("eval", "retry", flow_run)
        assert (retried.returncode, retried.stdout.splitlines()[-1]) == (
            0,
            f"Next:     nightjar eval logs {run_id} -f | nightjar eval get {run_id}",
        )
        assert services.end_of(flow_run) == "COMPLETED"
        assert (errors(services, "others"), server.stats().answered) == ([], len(before))
        assert "nothing to retry" in services.run("eval", "retry", run_id).stderr


def test_a_run_of_the_command_line_is_retried_here_by_its_flow_run_id(services):
    with ModelServer(ArithmeticSolver(), faults=BROKEN) as server:
        typed = ("arithmetic", "-m", "here", "-b", server.url, "-n", "10", "--request-retries", "0", "--json")
        ran = services.run("eval", "run", *typed)
    flow_run = json.loads(ran.stdout)["flow_run_id"]
    missing = len(errors(services, "here"))
    with ModelServer(ArithmeticSolver(), port=server.port) as server:
        retried = services.run("eval", "retry", flow_run, "--json")
        assert (retried.returncode, server.stats().answered) == (0, missing)
    metadata = json.loads(retried.stdout)
    assert Path(metadata["path"]).name == metadata["run_id"] == flow_run.replace("-", "")[-12:]


def verdict(services):
    """Returns the verdict of the only night of the suite."""
    nights = Warehouse(services.folder / "outputs/warehouse").nights()
    return next(each.verdict for each in nights if each.suite == "nights")
