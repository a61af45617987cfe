"""A run with 31 of 96 scored rollouts: it has the highest mean, but it must not look like the best run."""

import re

import pytest

from nightjar.analysis import describe_run, leaderboard
from nightjar.errors import ConfigError
from nightjar.statistics.coverage import LEAST_COVERAGE, has_low_coverage

# 30 of 31 examples are right. Wilson with z = 1.959964: (30 + z²/2 ± z √(30 · 1/31 + z²/4)) / (31 + z²)
FEW = "0.9677 [0.8381, 0.9943]"
# 24 of 32 examples are right three times. Student's t with 31 degrees of freedom: 0.75 ± 2.0395 · √(0.75 · 0.25 / 31)
MANY = "0.7500 [0.5914, 0.9086]"


@pytest.fixture
def runs(house, terminal):
    rewards = [[1.0, None, None]] * 30 + [[0.0, None, None], [None] * 3]
    told = {"env_id": "gsm8k", "rollouts_per_example": 3}
    few = {"status": "incomplete", "stderr": 1 / 31, "started_at": "2026-11-03T00:00:00Z"}
    house.publish("few", rewards, model="fragile", **told, **few)
    for day in (1, 2):
        many = {"stderr": (0.75 * 0.25 / 31) ** 0.5, "started_at": f"2026-11-0{day}T00:00:00Z"}
        house.publish(f"many{day}", [[1.0] * 3] * 24 + [[0.0] * 3] * 8, model="solid", **told, **many)
    return house


@pytest.fixture
def view(runs, browse):
    return browse(runs.warehouse)


def order(told):
    return re.findall(r'<a data-row href="/runs/(\w+)"', told)


def test_it_is_marked_and_comes_last_in_the_order_of_rewards(view):
    words = view.words("/")
    assert f"fragile {FEW} 32.2 % scored incomplete" in words
    assert words.count("32.2 % scored") == 1
    assert order(view.get("/").text) == ["few", "many2", "many1"]
    assert order(view.get("/?sort=reward").text) == ["many1", "many2", "few"]


def test_all_pages_show_one_interval(view, runs, nightjar):
    for page in ("/", "/history", "/history?env=gsm8k", "/samples?run=few&run=many1"):
        assert FEW in view.words(page), page
        assert MANY in view.words(page), page
    assert f"Avg reward {FEW} Interval 95 %: Wilson" in view.words("/runs/few")
    assert f"Avg reward {MANY} Interval 95 %: Student&#39;s t, by cluster" in view.words("/runs/many1")
    assert f"Avg reward {MANY} {FEW}" in view.words("/compare?run=many1&run=few")
    told = nightjar("compare", "many1", "few").words
    assert MANY in told
    assert FEW in told
    assert describe_run("few", warehouse=runs.warehouse).reward.interval.high == pytest.approx(0.99428, abs=1e-5)


def test_it_is_not_ranked(runs, nightjar, view):
    found = leaderboard("gsm8k", warehouse=runs.warehouse)
    assert [row.model for row in found.rows] == ["solid"]
    assert found.low_coverage == {"fragile": 31 / 96}
    assert "Not ranked: fragile (32.2 % scored): less than 95 % of the rollouts are scored" in (
        nightjar("leaderboard", "gsm8k").words
    )
    shown = view.get("/sql", params={"q": "leaderboard", "chart": "bars", "x": "model", "y": "avg_reward"}).text
    assert "solid: 0.75" in shown
    assert "fragile: 0.967" not in shown


def test_without_a_run_that_can_be_ranked_the_reason_is_given(house):
    house.publish("few", [1.0, None], model="fragile", env_id="other")
    with pytest.raises(ConfigError, match=r"No model of 'other' can be ranked: .* \(fragile 50%\)"):
        leaderboard("other", warehouse=house.warehouse)


def test_it_is_marked_in_the_list_of_runs_and_in_comparisons(runs, nightjar, view):
    listed = nightjar("eval", "list", "--warehouse", runs.warehouse.location)
    assert "INCOMPLETE LOCAL 32 × 3 0.968* –" in listed.words
    assert "less than 95 % of the rollouts are scored: few 32.2 %" in " ".join(listed.out.split())
    few = "Few scored: only 32.2 % of the planned rollouts of the candidate"
    assert few in nightjar("compare", "many1", "few").words
    assert "Few scored" not in nightjar("compare", "many1", "many2").words
    assert "32.2 % scored" in view.words("/compare?run=many1&run=many2&run=few")


def test_a_comparison_does_not_pass_if_failed_rollouts_could_overturn_it(house, terminal, nightjar):
    house.publish("before", [1.0] * 400), house.publish("few", [1.0] * 300 + [None] * 100)
    told = nightjar("compare", "before", "few", "--max-drop", "0.1", "--strict")
    assert (told.code, told.words.startswith("INCONCLUSIVE")) == (2, True)
    assert "If all failed rollouts were wrong, the difference would be -0.2500" in told.words
    assert nightjar("compare", "before", "few", "--max-drop", "0.4", "--strict").code == 0


def test_the_limit_is_the_same_in_sql(runs):
    shares = [None, 0.0, 0.9499, LEAST_COVERAGE, 1.0]
    [row] = runs.warehouse.query(
        "SELECT list_transform($shares, lambda x: has_low_coverage(x))", {"shares": shares}
    ).rows
    assert row[0] == [has_low_coverage(share) for share in shares] == [True, True, True, False, False]


def test_lines_join_only_runs_of_one_size_and_version(house, browse):
    told = {"env_id": "gsm8k", "model": "m", "rollouts_per_example": 1}
    runs = [
        ("a", {"env_version": "1"}, 4), ("quick", {"env_version": "1"}, 2), ("b", {"env_version": "1"}, 4),
        ("new", {"env_version": "2"}, 4), ("failed", {"env_version": "1", "coverage": 0.3}, 4),
        ("c", {"env_version": "1"}, 4),
    ]  # fmt: skip
    for day, (run_id, more, examples) in enumerate(runs, 1):
        house.publish(run_id, [1.0, 0.0] * (examples // 2), **told, started_at=f"2026-11-0{day}T00:00:00Z", **more)
    view = browse(house.warehouse)
    drawn = view.get("/history?env=gsm8k").text
    assert (
        drawn.count('y2="90.0" stroke="var(--mark)" stroke-opacity=".5"></line>') == 2
    )  # from a to b, and from b to c
    assert drawn.count('fill="var(--paper)"') == 1
    compared = re.findall(r"/compare\?run=(\w+)&amp;run=(\w+)&amp;metric=reward", drawn)
    assert compared == [("b", "c"), ("a", "b")]
    spark = "Rewards of the last 3 runs"
    row = {run_id: view.words(f"/?q={run_id}") for run_id in ("a", "quick", "new")}
    assert [run_id for run_id, words in row.items() if spark in words] == ["a"]
