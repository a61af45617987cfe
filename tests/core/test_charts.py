"""An interval beside its limit: where everything stands, worked out by hand."""

from dataclasses import replace
from math import inf

import pytest

from nightjar.analysis import Difference, Terms
from nightjar.reports.comparison import draw
from nightjar.statistics.intervals import Interval

DIFFERENCE = Difference(
    mean=-0.05, stderr=0.01, clusters=100, interval=Interval(-0.1, 0.0), method="t", effect=-0.1, p_mcnemar=None,
    p_worse=0.1, p_better=0.9, if_failed_wrong=0.0, if_failed_right=0.0, interval_if_failed_wrong=Interval(-0.2, 0.1),
)  # fmt: skip


def test_the_axis_contains_the_interval_the_limit_and_zero():
    drawn = draw(DIFFERENCE, Terms(max_drop=0.02), [DIFFERENCE])
    # from -0.1 to 0 with 8 % of that on either side: 1.16 widths, of which -0.1 is at .08 and 0 at 1.08
    assert (drawn.low, drawn.mean, drawn.high) == pytest.approx((6.9, 50.0, 93.1), abs=0.01)
    assert (drawn.zero, drawn.limit) == pytest.approx((93.1, 75.86), abs=0.01)
    assert (drawn.beyond_from, drawn.beyond_width) == (0.0, drawn.limit)
    assert drawn.limit_text == "-0.02"


def test_where_lower_is_better_the_limit_is_on_the_other_side():
    drawn = draw(DIFFERENCE, Terms(max_drop=0.1, direction="lower"), [DIFFERENCE])
    assert (drawn.low, drawn.zero, drawn.limit) == pytest.approx((6.9, 50.0, 93.1), abs=0.01)
    assert (drawn.beyond_from, drawn.beyond_width) == pytest.approx((93.1, 6.9), abs=0.01)


def test_an_infinite_end_is_drawn_at_the_edge_without_a_mark():
    drawn = draw(replace(DIFFERENCE, interval=Interval(-inf, inf)), Terms(), [DIFFERENCE])
    assert (drawn.low, drawn.high, drawn.ends) == (0.0, 100.0, [])
