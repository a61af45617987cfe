"""``nightjar eval stats``, as somebody types it."""

import pytest

from nightjar.warehouse import Warehouse


@pytest.fixture
def folder(tmp_path, monkeypatch, run_writer):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    rows = [
        run_writer.rollout(example, index, float(example < 6), info={"subject": "law" if example % 2 else "maths"})
        for example in range(9)
        for index in range(2)
    ]
    rows += [run_writer.rollout(9, 0, 1.0, info={"subject": "law"}), run_writer.failed(9, 1, info={"subject": "law"})]
    told = {"status": "incomplete", "rollouts": 20, "rollouts_per_example": 2, "model": "open/gpt", "env_id": "quiz"}
    run_writer.write(tmp_path / "run", rows, run_id="one", **told)
    Warehouse("outputs/warehouse").publish(tmp_path / "run", tidies=False)
    return tmp_path


def test_shows_how_well_a_run_is_known_at_80_columns(folder, nightjar):
    told = nightjar("eval", "stats", "on", "--by", "subject")
    assert max(map(len, told.out.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in told.out.splitlines()]
    assert lines[0] == "Run: one (incomplete)"
    # 13 right of 19; of the ten examples' totals 2, 2, 2, 2, 2, 2, 0, 0, 0, 1 about .6842 times their sizes
    assert any(line.startswith("Avg reward: 0.6842 [") for line in lines)
    assert "Scored: 19 of 20 rollouts, 10 examples" in lines
    assert "Failed: 1 have no reward: the mean is 0.6500 if all were wrong, 0.7000 if" in lines
    assert any(line.startswith("law 5 ") for line in lines)
    assert any(line.startswith("2 0.6667 ") for line in lines)


def test_takes_a_run_directory_and_a_model_and_prints_json(folder, nightjar):
    told = nightjar("eval", "stats", "open/gpt@quiz", "--json").json
    assert told["reward"]["value"] == pytest.approx(13 / 19)
    assert nightjar("eval", "stats", "run", "--json").json["pass_rates"] == told["pass_rates"]


def test_what_is_wrong_is_said_in_a_line(folder, nightjar):
    told = nightjar("eval", "stats", "one", "--by", "subjekt")
    assert (told.code, told.out) == (1, "")
    assert "No example of run 'one' has 'subjekt' in its info" in told.err
    assert nightjar("eval", "stats", "two").code == 1
