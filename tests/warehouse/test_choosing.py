"""Conditions that say which failed rollouts are retried, checked of a run that only the warehouse has."""

import json
import shutil

import pytest

from nightjar.errors import ConfigError
from nightjar.evaluation.resuming import check_where
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.warehouse import Warehouse


@pytest.fixture
def fail(write_run, tmp_path):
    """Publishes a run of which each rollout has failed with an error, and removes its directory."""

    def publish(run_id, error):
        run_dir = write_run(tmp_path / "runs", run_id)
        told = {"error": "ModelError", "message": "no", "error_chain_repr": f"ModelError -> {error}"}
        rows = [json.loads(line) for line in (run_dir / "results.jsonl").read_text().splitlines()]
        lines = [json.dumps({**row, "reward": None, "error": told}) + "\n" for row in rows]
        (run_dir / "results.jsonl").write_text("".join(lines))
        Warehouse(tmp_path / "house").publish(run_dir)
        shutil.rmtree(run_dir)

    return publish


def test_only_errors_of_the_run_count(fail, tmp_path):
    fail("limited", "RateLimitError")
    fail("broken", "InternalServerError")
    run = find_stored_run("limited", warehouse=str(tmp_path / "house"))
    assert run.path is None
    check_where(run, "error = 'RateLimitError' AND example_id = 1")
    check_where(run, "rate-limit")
    for condition in ("error = 'InternalServerError'", "timeout"):
        with pytest.raises(ConfigError, match="No failed rollout of run 'limited'"):
            check_where(run, condition)
    with pytest.raises(ConfigError, match='"nocolumn" not found'):
        check_where(run, "nocolumn = 1")
