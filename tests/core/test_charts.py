"""An interval beside its limit: where everything stands, worked out by hand."""

from math import inf

import pytest


@pytest.fixture
def drawn_of():
    """Draws a difference of -0.05 with this interval and these terms."""
    from nightjar.analysis import Difference, Terms
    from nightjar.reports.comparison import draw
    from nightjar.statistics.intervals import Interval

    def drawn(low=-0.1, high=0.0, **terms):
        difference = Difference(
            mean=-0.05, stderr=0.01, clusters=100, interval=Interval(low, high), method="t", effect=-0.1, p_worse=0.1,
            p_mcnemar=None, p_better=0.9, if_failed_wrong=0.0, if_failed_right=0.0,
            interval_if_failed_wrong=Interval(-0.2, 0.1),
        )  # fmt: skip
        return draw(difference, Terms(**terms), [difference])

    return drawn


def test_the_axis_contains_the_interval_the_limit_and_zero(drawn_of):
    drawn = drawn_of(max_drop=0.02)
    # from -0.1 to 0 with 8 % of that on either side: 1.16 widths, of which -0.1 is at .08 and 0 at 1.08
    assert (drawn.low, drawn.mean, drawn.high) == pytest.approx((6.9, 50.0, 93.1), abs=0.01)
    assert (drawn.zero, drawn.limit) == pytest.approx((93.1, 75.86), abs=0.01)
    assert (drawn.beyond_from, drawn.beyond_width) == (0.0, drawn.limit)
    assert drawn.limit_text == "-0.02"


def test_the_limit_is_on_the_other_side_where_lower_is_better_and_infinite_ends_are_drawn_at_the_edge(drawn_of):
    drawn = drawn_of(max_drop=0.1, direction="lower")
    assert (drawn.low, drawn.zero, drawn.limit) == pytest.approx((6.9, 50.0, 93.1), abs=0.01)
    assert (drawn.beyond_from, drawn.beyond_width) == pytest.approx((93.1, 6.9), abs=0.01)
    drawn = drawn_of(-inf, inf)
    assert (drawn.low, drawn.high, drawn.ends) == (0.0, 100.0, [])
