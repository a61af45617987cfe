"""The score of a rollout in the web view: weights, contributions and counters, wherever the run is."""

WEIGHTS = {"correct": 1.0, "format": 0.25, "num_turns": 0.0}
METRICS = {"correct": 0.0, "format": 1.0, "num_turns": 3.0}
SHOWN = (
    "Reward 0.25 wrong Function Value × weight Contribution correct 0 × 1 0 format 1 × 0.25 0.25 Reward 0.25 "
    "Not counted in the reward num_turns 3"
)


def test_a_published_rollout_and_its_exported_page_show_contributions(house, run_writer, tmp_path, browse, nightjar):
    rollouts = [run_writer.rollout(0, 0, 0.25, metrics=METRICS)]
    unknown = {"null": None, "none": {}, "some": {"correct": 1.0}}
    for run_id, weights in {"known": WEIGHTS, **unknown}.items():
        house.publish_rows(run_id, rollouts, status="completed", reward_weights=weights)
    view = browse(house.warehouse)
    assert SHOWN in view.words("/runs/known/0/0")
    for run_id in unknown:
        words = view.words(f"/runs/{run_id}/0/0")
        assert "Reward 0.25 wrong correct 0 format 1 num_turns 3" in words
        assert "Contribution" not in words
    assert nightjar("export", tmp_path / "known", "--html", tmp_path / "run.html").code == 0
    assert '<td class="number">1 × 0.25</td>' in (tmp_path / "run.html").read_text()


def test_a_rollout_of_a_run_in_progress_shows_contributions(live_view, run_writer):
    view = live_view([run_writer.rollout(0, 0, 0.25, metrics=METRICS)], reward_weights=WEIGHTS)
    assert SHOWN in view.words("/runs/run/0/0")
