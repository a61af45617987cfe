"""``nightjar eval stats`` on the command line."""

import pytest


@pytest.fixture
def folder(terminal, house):
    groups = [[float(n < 6)] * 2 for n in range(9)] + [[1.0, None]]
    infos = [{"subject": "law" if n % 2 else "maths"} for n in range(10)]
    told = {"status": "incomplete", "rollouts_per_example": 2, "model": "open/gpt", "env_id": "quiz"}
    house.publish("one", groups, place=terminal / "run", infos=infos, **told)


def test_shows_how_well_a_run_is_known_at_80_columns(folder, nightjar):
    told = nightjar("eval", "stats", "on", "--by", "subject")
    assert told.width <= 80
    # 13 right of 19; of the ten examples' totals 2, 2, 2, 2, 2, 2, 0, 0, 0, 1 about .6842 times their sizes
    for begin in ("Avg reward: 0.6842 [", "law 5 ", "2 0.6667 "):
        assert any(line.startswith(begin) for line in told.lines)
    assert {
        "Run: one (incomplete)", "Scored: 19 of 20 rollouts, 10 examples",
        "Failed: 1 have no reward: the mean is 0.6500 if all were wrong, 0.7000 if",
    } <= set(told.lines)  # fmt: skip


def test_takes_a_run_directory_and_a_model_prints_json_and_errors_of_one_line(folder, nightjar):
    told = nightjar("eval", "stats", "open/gpt@quiz", "--json").json
    assert told["reward"]["value"] == pytest.approx(13 / 19)
    assert nightjar("eval", "stats", "run", "--json").json["pass_rates"] == told["pass_rates"]
    told = nightjar("eval", "stats", "one", "--by", "subjekt")
    assert (told.code, told.out) == (1, "")
    assert "No example of run 'one' has 'subjekt' in its info" in told.err
    assert nightjar("eval", "stats", "two").code == 1
