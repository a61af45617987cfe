"""``nightjar eval retry``: the remaining rollouts of a run, or those that a condition selects."""

import json

import pytest

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = pytest.mark.long

BROKEN = Faults(rate_429=0.3, rate_500=0.2, seed=2)
SMALL = ("-n", 20, "-r", 2, "--request-retries", 0)


@pytest.fixture
def failed(nightjar):
    """A run that has failed rollouts of two kinds, the id of the run, and the port of its endpoint."""
    with ModelServer(ArithmeticSolver(), faults=BROKEN) as server:
        assert nightjar.eval("arithmetic", *SMALL, server=server).code == 1
    return nightjar.run, nightjar.run.metadata["run_id"], server.port


def chains(run):
    return [row["error"] and row["error"]["error_chain_repr"] for row in run.results]


def test_only_what_meets_the_condition_is_done_again(nightjar, serve, failed):
    run, run_id, port = failed
    limited, broken = chains(run).count("ModelError -> RateLimitError"), [row for row in run.results if is_broken(row)]
    assert limited
    assert broken
    server = serve(port=port)
    ended = nightjar.start("eval", "retry", run_id, "--where", "error = 'RateLimitError'", "--json").wait()
    assert ended.code == 1  # something is still missing
    assert json.loads(ended.stdout)["scored"] == 40 - len(broken)
    assert server.stats().received == limited
    assert [row for row in run.results if row["error"]] == broken
    assert nightjar.sql("SELECT status, failed FROM runs") == [("incomplete", len(broken))]
    ended = nightjar.start("eval", "retry", run_id[:6]).wait()
    assert (ended.code, server.stats().received) == (0, limited + len(broken))
    assert chains(run) == [None] * 40
    assert "Next:      nightjar view" in ended.stdout
    assert nightjar.start("eval", "retry", run_id).wait().code == 0
    assert server.stats().received == limited + len(broken)  # no rollout remains


def is_broken(row):
    return row["error"] is not None and "InternalServerError" in row["error"]["error_chain_repr"]


def test_a_condition_or_class_chooses_failures_and_others_are_refused_and_change_nothing(nightjar, serve, failed):
    run, run_id, port = failed
    before = run.content
    for option, value, said in (
        ("--where", "error = 'SandboxError'", "No failed rollout of run"),
        ("--where", "eror = 'RateLimitError'", 'column "eror" not found'),
        ("--where", "1) FROM named; DROP TABLE rollouts; --", "is wrong"),
        ("--where", "(SELECT count(*) FROM read_csv('/etc/passwd')) > 0", "is wrong"),
        ("--class", "weather", "'weather'"),
    ):
        ended = nightjar.start("eval", "retry", run_id, option, value).wait()
        assert (ended.code > 0, said in ended.stderr, run.content == before) == (True, True, True), value
    server = serve(port=port)
    for option, value, is_chosen in (
        ("--where", "error <> 'RateLimitError'", is_broken),
        ("--where", "error = 'ModelError' AND example_id < 10 -- the first half", lambda row: row["example_id"] < 10),
        ("--class", "rate-limit", lambda row: not is_broken(row)),
    ):
        wanted, received = sum(is_chosen(row) for row in run.results if row["error"]), server.stats().received
        nightjar.start("eval", "retry", run_id, option, value).wait()
        assert server.stats().received - received == wanted, value
