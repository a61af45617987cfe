"""A result as text and as HTML: aligned, escaped, with intervals on one scale."""

from math import inf

from late import late

panels = late("nightjar.reports.panels")

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def test_intervals_are_drawn_on_one_scale():
    from nightjar.statistics.intervals import Interval

    span, everything = panels.Span, Interval(-inf, inf)
    shares = [(0.5, Interval(0.25, 0.75)), (None, Interval(0, 1)), (0.5, everything)]
    assert panels.spans(shares) == [span(25.0, 50.0, 75.0), None, None]
    others = [(0.0, Interval(-10, 10)), (5.0, Interval(0, 10))]
    assert panels.spans(others) == [span(0.0, 50.0, 100.0), span(50.0, 75.0, 100.0)]
    assert panels.spans([(3.0, Interval(3.0, 3.0))]) == [span(0.0, 0.0, 0.0)]
    assert panels.spans([(0.5, everything)]) == [], "nothing is drawn without an interval"


def test_the_text_is_a_table_without_trailing_spaces():
    rows = [("small", "0.5"), ("larger", "10")]
    table = panels.PanelTable(("Model", "Reward"), rows, numbers=frozenset({"Reward"}), more=3)
    text = panels.Panel("2 runs", "completed", {"Scored": "4"}, [table]).text()
    table = " Model   Reward\n ──────────────\n small      0.5\n larger      10\n"
    assert text.rstrip("\n") == f"2 runs completed\nScored: 4\n\n{table}\n… and 3 more rows"


def test_hostile_text_is_escaped():
    for fields in (
        {"title": HOSTILE}, {"status": HOSTILE}, {"lines": {HOSTILE: HOSTILE}}, {"drawing": [HOSTILE]},
        {"link": f"http://127.0.0.1/runs/{HOSTILE}"},
        {"tables": [panels.PanelTable((HOSTILE,), [(HOSTILE,)], title=HOSTILE)]},
    ):  # fmt: skip
        panel = panels.Panel(**{"title": "", **fields})
        assert "<script" not in panel.html()
        assert not {"\x1b", "\u202e"} & {*panel.html(), *panel.text()}
