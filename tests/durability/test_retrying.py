"""``nightjar eval retry``: the remaining rollouts of a run, or those that a condition selects."""

import json

import pytest

from nightjar.engine.runs import RunDirectory
from nightjar.errors import ConfigError
from nightjar.evaluation.resuming import check_where, failed_where
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.model_server import Faults

pytestmark = pytest.mark.long

BROKEN = Faults(rate_429=0.3, rate_500=0.2, seed=2)


def test_what_a_condition_or_class_selects_is_done_again_and_then_all_that_failed(nightjar, serve):
    server = serve(faults=BROKEN)
    assert nightjar.eval("arithmetic", "-n", 20, "-r", 2, "--request-retries", 0, server=server).code == 1
    server.__exit__(None, None, None)
    run, run_id, before = nightjar.run, nightjar.run.metadata["run_id"], nightjar.run.content
    stored = find_stored_run(run_id, warehouse=str(nightjar.warehouse.folder))
    with pytest.raises(ConfigError, match="is wrong"):
        check_where(stored, "(SELECT count(*) FROM read_csv('/etc/passwd')) > 0")
    for option, value, said in (
        ("--where", "1) FROM named; DROP TABLE rollouts; --", "is wrong"), ("--class", "weather", "'weather'"),
    ):  # fmt: skip
        ended = nightjar.start("eval", "retry", run_id, option, value).wait()
        assert (ended.code > 0, said in ended.stderr, run.content == before) == (True, True, True), value

    failed = [row for row in run.results if row["error"]]
    limited = [row for row in failed if row["error"]["error_chain_repr"] == "ModelError -> RateLimitError"]
    broken = [row for row in failed if row not in limited]
    early = [row for row in limited if row["example_id"] < 10]
    assert 0 < len(early) < len(limited) < len(failed)
    others = failed_where(RunDirectory(run.path), "error <> 'RateLimitError'")
    assert others == {(row["example_id"], row["rollout_index"]) for row in broken}
    server = serve(port=server.port)
    where = "error = 'RateLimitError' AND example_id < 10 -- the first half"
    ended = nightjar.start("eval", "retry", run_id, "--where", where, "--json").wait()
    scored = 40 - len(failed) + len(early)
    assert (ended.code, json.loads(ended.stdout)["scored"], server.stats().received) == (1, scored, len(early))
    assert [row for row in run.results if row["error"]] == [row for row in failed if row not in early]
    assert nightjar.start("eval", "retry", run_id, "--class", "rate-limit").wait().code == 1
    assert ([row for row in run.results if row["error"]], server.stats().received) == (broken, len(limited))
    assert nightjar.sql("SELECT status, failed FROM runs") == [("incomplete", len(broken))]
    ended = nightjar.start("eval", "retry", run_id[:6]).wait()
    assert (ended.code, server.stats().received) == (0, len(failed))
    assert [row["error"] for row in run.results] == [None] * 40
    assert "Next:      nightjar view" in ended.stdout
    assert nightjar.start("eval", "retry", run_id).wait().code == 0
    assert server.stats().received == len(failed), "no rollout remains"
