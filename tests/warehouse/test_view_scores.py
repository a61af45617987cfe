"""The score of a rollout in the web view: weights, contributions and counters, wherever the run is."""

import os

import pytest

from nightjar.core.process_ids import process_host
from nightjar.view import live
from nightjar.warehouse import Warehouse

WEIGHTS = {"correct": 1.0, "format": 0.25, "num_turns": 0.0}
METRICS = {"correct": 0.0, "format": 1.0, "num_turns": 3.0}
SHOWN = (
    "Reward 0.25 wrong Function Value × weight Contribution correct 0 × 1 0 format 1 × 0.25 0.25 Reward 0.25 "
    "Not counted in the reward num_turns 3"
)


@pytest.fixture
def write(tmp_path, run_writer):
    def write(folder=tmp_path / "run", status="completed", weights=WEIGHTS, **told):
        counts = {"rollouts": 1, "scored": 1, "failed": 0, "num_examples": 1}
        rollouts = [run_writer.rollout(0, 0, 0.25, metrics=METRICS)]
        return run_writer.write(folder, rollouts, run_id="run", status=status, reward_weights=weights, **counts, **told)

    return write


def test_a_published_rollout_shows_contributions(write, tmp_path, browse):
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.publish(write(), tidies=False)
    assert SHOWN in browse(warehouse).words("/runs/run/0/0")


def test_a_rollout_of_a_run_in_progress_shows_contributions(write, tmp_path, browse, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "_SEARCH_SECONDS", 0.0)
    folder = write(tmp_path / "outputs/evals/env--gpt/run", "running")
    (folder / ".lock").write_text(f"process {os.getpid()} on {process_host()}")
    assert SHOWN in browse(Warehouse(tmp_path / "warehouse")).words("/runs/run/0/0")


def test_an_exported_page_shows_contributions(write, tmp_path, nightjar):
    assert nightjar("export", write(), "--html", tmp_path / "run.html").code == 0
    assert '<td class="number">1 × 0.25</td>' in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize("weights", [None, {}, {"correct": 1.0}])
def test_metrics_without_known_weights_are_listed(write, tmp_path, browse, weights):
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.publish(write(weights=weights), tidies=False)
    words = browse(warehouse).words("/runs/run/0/0")
    assert "Reward 0.25 wrong correct 0 format 1 num_turns 3" in words
    assert "Contribution" not in words
