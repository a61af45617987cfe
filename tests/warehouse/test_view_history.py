"""Nights and history in the web view."""

import re

import pytest

from nightjar.warehouse.storage.records import Night, NightEvaluation


@pytest.fixture(scope="module")
def view(shared_house, browse):
    """Three nights of a suite: the third is worse, of another version; and a night with a missing run."""
    from nightjar.analysis import judge_night

    warehouse = shared_house.warehouse
    evaluations = [NightEvaluation("gsm8k", "missing", "gsm8k", "m")]
    for night, right, version in (("2026-11-01", 36, "1.0"), ("2026-11-02", 36, "1.0"), ("2026-11-03", 18, "1.1")):
        told = {"suite": "nightly", "tags": [f"night:{night}"], "env_version": version, "stderr": 0.05,
                "started_at": f"{night}T02:00:00Z", "rollouts_per_example": 1}  # fmt: skip
        shared_house.publish(f"run-{night}", [1.0] * right + [0.0] * (40 - right), **told)
        warehouse.write_night(judge_night(warehouse, Night("nightly", night, "running", evaluations=evaluations)))
    warehouse.write_night(Night("other", "2026-11-04", "incomplete", "one is missing", evaluations=evaluations))
    return browse(warehouse)


def test_nights_are_listed_the_newest_first_and_each_shows_its_evaluations(view):
    told = view.get("/nights").text
    assert re.findall(r'status status-(\w+)"', told) == ["incomplete", "worse", "accepted", "accepted"]
    assert "gsm8k worse by 0.450" in told
    assert re.findall(r'status status-(\w+)"', view.get("/nights?suite=other").text) == ["incomplete"]
    told = view.get("/nights?suite=nightly&night=2026-11-03").text
    for words in ("/compare?run=run-2026-11-02&amp;run=run-2026-11-03", "/history?env=gsm8k", "worse (-0.450"):
        assert words in told
    assert view.get("/nights?suite=nightly&night=2026-11-09").status_code == 404


def test_history_has_every_series_with_intervals_and_marks_a_metric_and_no_unknown_names(view):
    told = view.get("/history?env=gsm8k").text
    assert [float(value) for value in re.findall(r"<title>2026-11-0\d 02:00: (\S+) \[", told)] == [0.9, 0.9, 0.45]
    assert "<title>results changed by more than chance: mean 0.9000 → 0.4500; environment: 1.0 → 1.1</title>" in told
    assert "/compare?run=run-2026-11-02&amp;run=run-2026-11-03" in told
    assert told.count('<a href="/runs/run-2026-11-03"') == 3  # in the plot, beside the mark, in the table
    half = 2.0227 * 0.05  # Student's t at 97.5 % with 39 degrees of freedom
    low, high = re.search(r"0\.4500 \[(\S+), (\S+)\]", told).groups()
    assert (float(low), float(high)) == pytest.approx((0.45 - half, 0.45 + half), abs=1e-4)
    told = view.get("/history?env=gsm8k&metric=length")
    assert "2026-11-03 02:00: 12.0000, 40 × 1<" in told.text
    for asked in ("env=none", "env=gsm8k&metric=none", "env=gsm8k&model=none", "env=%3Cscript%3E"):
        told = view.get(f"/history?{asked}")
        assert (told.status_code, "No finished run" in told.text, "<script>" in told.text) == (200, True, False)
    assert "/history?env=gsm8k&amp;model=" in view.get("/history").text
