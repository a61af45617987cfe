"""``nightjar publish`` of a run whose process died: its finished rollouts, with the status ``crashed``."""

import json
import os
from datetime import UTC, datetime

import pytest
from filelock import FileLock

from nightjar.warehouse import Warehouse

ASKED = 6
BEGAN, WROTE_LAST = 1_795_000_000.0, 1_795_000_090.0
COUNTED = ("scored", "failed", "coverage", "avg_reward", "stderr", "avg_metrics", "pass_at_k", "errors", "finished_at")


@pytest.fixture
def dead(tmp_path, run_writer):
    """A run of 3 examples × 2 that was killed in its second session: 4 of 6 rollouts scored or failed, 5 generated."""
    attempts = [run_writer.attempt(0, 0), run_writer.attempt(0, 1), run_writer.attempt(2, 1)]
    attempts += [
        run_writer.attempt(1, 1, 1, error=run_writer.failure), run_writer.attempt(1, 0), '{"example_id": 2, "ro',
    ]  # fmt: skip
    rollouts = run_writer.rollouts
    path = run_writer.write(tmp_path / "abc", [*reversed(rollouts[1:]), rollouts[0], '{"torn'], attempts, run_id="abc")
    kept = {name: value for name, value in run_writer.metadata.items() if name not in COUNTED}
    now = {"run_id": "abc", "status": "running", "rollouts": ASKED, "num_examples": 3, "time_ms": 10_000}
    (path / "metadata.json").write_text(json.dumps({**kept, **now}))
    (path / "config.json").write_text("{}")
    for name, moment in (("metadata.json", BEGAN), ("results.jsonl", BEGAN + 60), ("attempts.jsonl", WROTE_LAST)):
        os.utime(path / name, (moment, moment))
    return path


def test_it_is_published_as_crashed_with_its_aggregates(dead, tmp_path, nightjar):
    house = Warehouse(tmp_path / "house")
    ended = nightjar("publish", dead, "--warehouse", house.location)
    assert ended.code == 0
    assert ended.out == f"Published 4 rollouts of run abc in {house.location}\n"
    question = "SELECT status, scored, failed, coverage, avg_reward, time_ms, finished_at FROM runs"
    assert house.query(question).rows == [("crashed", 3, 1, 0.5, 0.5, 100_000, datetime.fromtimestamp(WROTE_LAST, UTC))]
    attempts = "SELECT example_id, rollout_index, error FROM attempts ORDER BY 1, 2"
    assert house.query(attempts).rows == [
        (0, 0, None), (0, 1, None), (1, 0, None), (1, 1, "ModelError"), (2, 1, None)
    ]  # fmt: skip
    rows = [json.loads(line) for line in (dead / "results.jsonl").read_text().splitlines()]
    assert [(row["example_id"], row["rollout_index"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    metadata = json.loads((dead / "metadata.json").read_text())
    assert (metadata["status"], metadata["coverage"]) == ("crashed", 0.5)
    assert metadata["published_at"]
    assert house.query("SELECT run_id FROM finished_runs").rows == []  # no mean that stands for the model

    again = nightjar("publish", dead, "--warehouse", house.location)
    assert again.out == f"Already there: 4 rollouts of run abc in {house.location}\n"


def test_a_run_that_another_process_writes_or_that_is_damaged_is_left_alone(dead, tmp_path, nightjar):
    before = {path.name: path.read_bytes() for path in dead.iterdir()}
    (dead / ".lock").write_text("process 1 on elsewhere")
    with FileLock(dead / ".lock"):
        ended = nightjar("publish", dead, "--warehouse", tmp_path / "house")
    assert ended.code == 1
    assert "Run 'abc' is being written by process 1 on elsewhere" in ended.err
    assert {name: (dead / name).read_bytes() for name in before} == before
    (dead / ".lock").unlink()
    path = dead / "results.jsonl"
    path.write_text("{}\n" + path.read_text())
    before = {path.name: path.read_bytes() for path in dead.iterdir()}
    ended = nightjar("publish", dead, "--warehouse", tmp_path / "house")
    assert ended.code == 1
    assert f"{path}, line 1 is damaged" in ended.err
    assert {name: (dead / name).read_bytes() for name in before} == before
