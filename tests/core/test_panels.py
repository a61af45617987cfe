"""A result as text and as HTML: aligned, escaped, with intervals on one scale."""

from math import inf

import pytest

from nightjar.reports.panels import Panel, PanelTable, Span, spans
from nightjar.statistics.intervals import Interval

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def test_intervals_of_shares_are_drawn_from_zero_to_one():
    drawn = spans([(0.5, Interval(0.25, 0.75)), (None, Interval(0, 1)), (0.5, Interval(-inf, inf))])
    assert drawn == [Span(25.0, 50.0, 75.0), None, None]


def test_other_intervals_are_drawn_between_their_ends():
    assert spans([(0.0, Interval(-10, 10)), (5.0, Interval(0, 10))]) == [
        Span(0.0, 50.0, 100.0),
        Span(50.0, 75.0, 100.0),
    ]
    assert spans([(3.0, Interval(3.0, 3.0))]) == [Span(0.0, 0.0, 0.0)]


def test_without_an_interval_nothing_is_drawn():
    assert spans([(0.5, Interval(-inf, inf))]) == []


def test_the_text_is_a_table_without_trailing_spaces():
    table = PanelTable(("Model", "Reward"), [("small", "0.5"), ("larger", "10")], numbers=frozenset({"Reward"}), more=3)
    lines = Panel("2 runs", "completed", {"Scored": "4"}, [table]).text().splitlines()
    assert lines == [
        "2 runs completed",
        "Scored: 4",
        "",
        " Model   Reward",
        " ──────────────",
        " small      0.5",
        " larger      10",
        "",
        "… and 3 more rows",
    ]


@pytest.mark.parametrize(
    "panel",
    [
        Panel(HOSTILE),
        Panel("", HOSTILE),
        Panel("", lines={HOSTILE: HOSTILE}),
        Panel("", tables=[PanelTable((HOSTILE,), [(HOSTILE,)], title=HOSTILE)]),
        Panel("", link=f"http://127.0.0.1/runs/{HOSTILE}"),
        Panel("", drawing=[HOSTILE]),
    ],
)
def test_hostile_text_is_escaped(panel):
    assert "<script" not in panel.html()
    assert not {"\x1b", "\u202e"} & {*panel.html(), *panel.text()}
