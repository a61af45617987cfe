"""A run with 31 of 96 scored rollouts: it has the highest mean, but it must not look like the best run."""

import re

import pytest

from nightjar.errors import ConfigError

# 30 of 31 examples are right. Wilson with z = 1.959964: (30 + z²/2 ± z √(30 · 1/31 + z²/4)) / (31 + z²)
FEW = "0.9677 [0.8381, 0.9943]"
# 24 of 32 examples are right three times. Student's t with 31 degrees of freedom: 0.75 ± 2.0395 · √(0.75 · 0.25 / 31)
MANY = "0.7500 [0.5914, 0.9086]"


@pytest.fixture(scope="module")
def runs(shared_house):
    rewards = [[1.0, None, None]] * 30 + [[0.0, None, None], [None] * 3]
    told = {"env_id": "gsm8k", "rollouts_per_example": 3}
    few = {"status": "incomplete", "stderr": 1 / 31, "started_at": "2026-11-03T00:00:00Z"}
    shared_house.publish("few", rewards, model="fragile", **told, **few)
    for day in (1, 2):
        many = {"stderr": (0.75 * 0.25 / 31) ** 0.5, "started_at": f"2026-11-0{day}T00:00:00Z"}
        shared_house.publish(f"many{day}", [[1.0] * 3] * 24 + [[0.0] * 3] * 8, model="solid", **told, **many)
    shared_house.publish("other", [1.0, None], model="fragile", env_id="other", started_at="2026-10-01T00:00:00Z")
    return shared_house.warehouse


@pytest.fixture(scope="module")
def view(runs, browse):
    return browse(runs)


@pytest.fixture
def nightjar(nightjar, terminal, shared_house, monkeypatch):
    monkeypatch.chdir(shared_house.folder)
    return nightjar


@pytest.mark.slow
def test_all_pages_show_one_interval_and_mark_the_run_which_comes_last_in_the_order_of_rewards(view, runs, nightjar):
    from nightjar.analysis import describe_run

    words = view.words("/?env=gsm8k")
    assert f"fragile {FEW} 32.2 % scored incomplete" in words
    assert words.count("32.2 % scored") == 1
    assert view.links("/?env=gsm8k") == ["/runs/few", "/runs/many2", "/runs/many1"]
    assert view.links("/?env=gsm8k&sort=reward") == ["/runs/many1", "/runs/many2", "/runs/few"]
    for page in ("/", "/history", "/history?env=gsm8k", "/samples?run=few&run=many1"):
        assert FEW in view.words(page), page
        assert MANY in view.words(page), page
    assert f"Avg reward {FEW} Interval 95 %: Wilson" in view.words("/runs/few")
    assert f"Avg reward {MANY} Interval 95 %: Student&#39;s t, by cluster" in view.words("/runs/many1")
    assert f"Avg reward {MANY} {FEW}" in view.words("/compare?run=many1&run=few")
    assert "32.2 % scored" in view.words("/compare?run=many1&run=many2&run=few")
    told = nightjar("compare", "many1", "few").words
    for words in (MANY, FEW, "Few scored: only 32.2 % of the planned rollouts of the candidate"):
        assert words in told
    assert "Few scored" not in nightjar("compare", "many1", "many2").words
    assert describe_run("few", warehouse=runs).reward.interval.high == pytest.approx(0.99428, abs=1e-5)


def test_a_run_of_low_coverage_is_not_ranked(runs, nightjar, view):
    from nightjar.analysis import leaderboard

    found = leaderboard("gsm8k", warehouse=runs)
    assert [row.model for row in found.rows] == ["solid"]
    assert found.low_coverage == {"fragile": 31 / 96}
    reason = "Not ranked: fragile (32.2 % scored): less than 95 % of the rollouts are scored"
    assert reason in nightjar("leaderboard", "gsm8k").words
    shown = view.get("/sql", params={"q": "leaderboard", "chart": "bars", "x": "model", "y": "avg_reward"}).text
    assert "solid: 0.75" in shown
    assert "fragile: 0.967" not in shown
    with pytest.raises(ConfigError, match=r"No model of 'other' can be ranked: .* \(fragile 50%\)"):
        leaderboard("other", warehouse=runs)
    listed = nightjar("eval", "list", "--warehouse", runs.location).words
    assert "INCOMPLETE LOCAL 32 × 3 0.968* –" in listed
    assert "less than 95 % of the rollouts are scored: few 32.2 %" in listed


def test_a_comparison_does_not_pass_if_failed_rollouts_could_overturn_it(house, nightjar):
    house.publish("before", [1.0] * 400), house.publish("after", [1.0] * 300 + [None] * 100)
    command = ("compare", "before", "after", "--warehouse", house.warehouse.location, "--strict", "--max-drop")
    told = nightjar(*command, "0.1")
    assert (told.code, told.words.startswith("INCONCLUSIVE")) == (2, True)
    assert "If all failed rollouts were wrong, the difference would be -0.2500" in told.words
    assert nightjar(*command, "0.4").code == 0


def test_the_limit_of_coverage_is_the_same_in_sql(runs):
    from nightjar.statistics.coverage import LEAST_COVERAGE, has_low_coverage

    shares = [None, 0.0, 0.9499, LEAST_COVERAGE, 1.0]
    found = runs.query("SELECT list_transform($shares, lambda x: has_low_coverage(x))", {"shares": shares}).rows
    assert found[0][0] == [has_low_coverage(share) for share in shares] == [True, True, True, False, False]


def test_lines_join_only_runs_of_one_size_and_version(house, browse):
    told = {"env_id": "gsm8k", "model": "m", "rollouts_per_example": 1}
    runs = (("a", "1", 4, {}), ("quick", "1", 2, {}), ("b", "1", 4, {}), ("new", "2", 4, {}),
            ("failed", "1", 4, {"coverage": 0.3}), ("c", "1", 4, {}))  # fmt: skip
    for day, (run_id, version, examples, more) in enumerate(runs, 1):
        more |= {"env_version": version, "started_at": f"2026-11-0{day}T00:00:00Z"}
        house.publish(run_id, [1.0, 0.0] * (examples // 2), **told, **more)
    view = browse(house.warehouse)
    drawn = view.get("/history?env=gsm8k").text
    line = 'y2="90.0" stroke="var(--mark)" stroke-opacity=".5"></line>'
    assert drawn.count(line) == 2  # from a to b, and from b to c
    assert drawn.count('fill="var(--paper)"') == 1
    compared = re.findall(r"/compare\?run=(\w+)&amp;run=(\w+)&amp;metric=reward", drawn)
    assert compared == [("b", "c"), ("a", "b")]
    shown = [run_id for run_id in ("a", "quick", "new") if "Rewards of the last 3 runs" in view.words(f"/?q={run_id}")]
    assert shown == ["a"]
