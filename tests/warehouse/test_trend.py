"""``nightjar trend``: runs made by hand, whose answers are known."""

from functools import partial
from xml.etree import ElementTree as ET

import pytest

from nightjar import analysis
from nightjar.errors import ConfigError

EXAMPLES = 60


def publish(house, first_day, right, *, model="m", **content):
    """Publishes a run a day, with so many right of 60; which ones, turns round by one a night."""
    for day, count in enumerate(right, first_day):
        rewards = [float((n - day) % EXAMPLES < count) for n in range(EXAMPLES)]
        house.publish(f"{model}-{day:02}", rewards, model=model, **{"started_at": began(day), **content})


@pytest.fixture
def nightly(terminal, house):
    return partial(publish, house)


@pytest.fixture(scope="module")
def changed(shared_house):
    """A folder with eight nights before a change and six after it."""
    publish(shared_house, 1, [50] * 8, served_models=["m-2025"])
    publish(shared_house, 9, [20] * 6, served_models=["m-2026"])
    return shared_house.folder


def began(day):
    return f"2026-01-{day:02}T02:00:00+00:00"


def changes(**wanted):
    [series] = analysis.trend("gsm8k", **wanted).series
    return series.changes


def test_a_change_and_what_was_changed_with_it(changed, terminal, nightjar, monkeypatch):
    monkeypatch.chdir(changed)
    [found] = changes()
    assert (found.previous, found.run_id, found.earliest, found.latest) == ("m-08", "m-09", "m-09", "m-09")
    assert (found.before, found.after) == pytest.approx((50 / 60, 20 / 60))
    assert found.differs == {"served model": (["m-2025"], ["m-2026"])}
    # a turn by one changes two answers of 60; on the ninth night 30 more are broken than fixed, and the turn moves one
    assert found.usually_flipped == pytest.approx(2 / 60)
    assert found.flipped == pytest.approx(31 / 60, abs=2 / 60)
    told = nightjar("trend", "gsm8k")
    assert told.width <= 80
    text = told.words
    assert "gsm8k, m: reward of 14 runs" in text
    assert "2026-01-09: 0.8333 → 0.3333 (-0.5000," in text
    assert "Differs: served model: m-2025 → m-2026" in text
    assert "Next: nightjar compare m-08 m-09" in told.err


def test_settings_that_follow_one_another_are_one_series_and_others_two(nightly):
    nightly(1, [50] * 6)
    nightly(7, [20] * 6, sampling_args={"temperature": 1.5})
    [found] = changes()
    assert list(found.differs) == ["sampling"]
    nightly(13, [50])
    assert [len(series.points) for series in analysis.trend("gsm8k").series] == [7, 6]


def test_other_examples_are_not_compared(nightly, nightjar):
    nightly(1, [50] * 6)
    nightly(7, [20] * 6, hashes="other")
    [series] = analysis.trend("gsm8k").series
    assert ([point.segment for point in series.points], series.changes) == ([0] * 6 + [1] * 6, [])
    assert "Examples: 2026-01-07: different examples from run m-07" in nightjar("trend", "gsm8k").out


def test_a_dataset_that_grew_is_compared_on_what_is_common(nightly, nightjar, house):
    nightly(1, [30] * 8)
    for day in (9, 10, 11, 12):
        house.publish(f"grown-{day}", [1.0] * 100, model="m", started_at=began(day))
    [series] = analysis.trend("gsm8k").series
    assert [(point.new, point.segment) for point in series.points[7:10]] == [(0, 0), (40, 0), (0, 0)]
    # of the sixty that all were asked, half were right, and then all
    assert [change.run_id for change in series.changes] == ["grown-9"]
    assert (series.changes[0].before, series.changes[0].after) == pytest.approx((0.5, 1.0))
    assert "40 of 100 examples are new with run grown-9" in nightjar("trend", "gsm8k").words


def test_no_change_is_said_and_unknown_names_list_the_known_ones(nightly, nightjar):
    nightly(1, [40, 41, 40, 39, 40, 41, 40])
    assert changes() == []
    assert "Changes: none" in nightjar("trend", "gsm8k").out
    with pytest.raises(ConfigError, match=r"'gsm9k' in .* has 'reward'. There are: gsm8k"):
        analysis.trend("gsm9k")
    with pytest.raises(ConfigError, match=r"and model 'x' .*There are: gsm8k \(m\)"):
        analysis.trend("gsm8k", model="x")


def test_a_metric_since_a_day_and_of_a_model(nightly):
    nightly(1, [50] * 4)
    nightly(1, [10] * 4, model="n")
    found = analysis.trend(
        "gsm8k", metric="correct", model="n", since=analysis.trend("gsm8k").series[0].points[2].began.date()
    )
    [series] = found.series
    assert [point.run_id for point in series.points] == ["n-03", "n-04"]
    assert series.points[0].value == pytest.approx(10 / 60)


def test_as_svg_and_json(changed, terminal, nightjar, monkeypatch, tmp_path):
    pytest.importorskip("vl_convert")
    monkeypatch.chdir(changed)
    told = nightjar("trend", "gsm8k", "--svg", tmp_path / "trend.svg", "--json")
    assert told.json["series"][0]["changes"][0]["run_id"] == "m-09"
    svg = ET.parse(tmp_path / "trend.svg")
    assert svg.getroot().tag.endswith("svg")
    assert "-0.500" in "".join(svg.getroot().itertext())
