"""Comparisons of runs in the web view."""

import re

import pytest


@pytest.fixture(scope="module")
def view(shared_house, browse):
    """A client of a warehouse with three runs over the same twenty examples, and one over others."""
    right = [1.0] * 18 + [0.0] * 2
    for run_id, rewards in (("base", right), ("worse", [0.0] * 17 + [1.0, 1.0, 0.0]), ("same", right)):
        shared_house.publish(run_id, rewards, infos=[{"level": 1}] * 20)
    shared_house.publish("other", [1.0], hashes="other")
    return browse(shared_house.warehouse)


def test_two_runs_are_shown_with_their_difference_and_flips(view):
    told = view.get("/compare?run=base&run=worse")
    assert told.status_code == 200
    for words in (
        "REGRESSION", "17 examples", "1 example<", "/runs/base/0/0?beside=worse", "/runs/worse/18/0?beside=base",
        "higher in the candidate for 1, lower for 17",
    ):  # fmt: skip
        assert words in told.text
    assert sorted(re.findall(r"<title>(\d+) examples: (\S+) → (\S+)</title>", told.text)) == [
        ("1", "0", "0"), ("1", "0", "1"), ("1", "1", "1"), ("17", "1", "0")
    ]  # fmt: skip


def test_the_form_sets_the_terms_and_several_runs_are_compared_with_the_first(view):
    assert "PASS" in view.get("/compare?run=base&run=worse&max_drop=1").text
    told = view.get("/compare?run=base&run=same&metric=correct&direction=lower&by=level").text
    assert "By level" in told
    assert '<option value="correct" selected>correct</option>' in told
    told = view.get("/compare?run=base&run=same&max_drop=-1")
    assert (told.status_code, "max_drop" in told.text) == (400, True)
    told = view.get("/compare?run=base&run=worse&run=same&run=other")
    assert told.status_code == 200
    assert "/compare?run=base&amp;run=worse&amp;" in told.text
    assert "No example is in both run" in told.text


def test_wrong_comparisons_are_refused(view):
    for asked, status, words in (
        ("", 200, "Enter the ids of two runs"),
        ("run=base", 200, "Enter the ids of two runs"),
        ("run=base&run=base", 400, "Both sides are run"),
        ("run=base&run=missing", 404, "There is no run"),
        ("run=base&run=/etc/passwd", 404, "There is no run"),
        ("run=base&run=*", 404, "There is no run"),
        ("run=base&run=other", 400, "No example is in both run"),
        ("run=base&run=same&metric=height", 400, "Choose one of: reward, correct"),
        ("run=base&run=same&by=colour", 400, "has &#39;colour&#39; in its info"),
    ):
        told = view.get(f"/compare?{asked}")
        assert (told.status_code, words in told.text) == (status, True), asked


def test_ticks_are_round_numbers():
    from nightjar.view.charts import Scale

    assert Scale.over([0.0, 1.0], 0, 100).ticks == [
        (0.0, "0"), (20.0, "0.2"), (40.0, "0.4"), (60.0, "0.6"), (80.0, "0.8"), (100.0, "1")
    ]  # fmt: skip
    assert [text for _, text in Scale.over([-3.0, 1200.0], 0, 100).ticks] == ["0", "500", "1000"]
    assert [text for _, text in Scale.over([7.0], 0, 100).ticks] == ["4", "6", "8", "10"]
    assert Scale.over([float("nan")], 0, 100).ticks == Scale.over([0.0, 1.0], 0, 100).ticks
