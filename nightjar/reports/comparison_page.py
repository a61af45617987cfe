"""A comparison of runs as a page: one file that needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from nightjar import __version__
from nightjar.comparison import Comparison, Comparisons, Difference, Flip, Terms
from nightjar.reports.comparison import (
    category_rows,
    differing_rows,
    evaluation_name,
    findings,
    one_sided,
    side_rows,
    verdict,
)
from nightjar.reports.html import render

SHOWN_FLIPS = 20
"""So many are shown each way, with their texts."""
_MARGIN = 0.08
_NEAR_END = 25.0


@dataclass(frozen=True)
class Chart:
    """An interval of a difference beside the limit; places are percent of the width.

    Attributes:
        low, high, mean: of the difference; an end that is infinite is at the edge.
        ends: those of the interval that are not infinite.
        zero: where nothing has changed.
        limit, limit_text: what it may be, and that in words.
        beyond_from, beyond_width: what is beyond the limit.
        zero_anchor, limit_anchor: on which side of its place a text stands.
        label: what is drawn, in words.
    """

    low: float
    high: float
    mean: float
    ends: list[float]
    zero: float
    limit: float
    limit_text: str
    beyond_from: float
    beyond_width: float
    zero_anchor: str
    limit_anchor: str
    label: str


@dataclass(frozen=True)
class ComparisonPage:
    """A comparison as the template shows it."""

    found: Comparison
    name: str
    chart: Chart
    shared_chart: Chart
    sides: list[tuple[str, str, str, str]]
    findings: dict[str, str]
    differs: list[tuple[str, str, str]]
    categories: list[tuple[tuple[str, ...], str, Chart]]
    broken: list[Flip]
    fixed: list[Flip]


def comparison_page(compared: Comparisons) -> str:
    """Returns a page with one comparison or several; compared with excerpts, it has the texts of the first flips."""
    shared = [one.difference for one in compared.found]
    return render(
        "comparison.html",
        decision=compared.decision,
        is_single=len(compared.found) == 1 and not compared.missing and not compared.new,
        verdict=verdict(compared),
        one_sided=one_sided(compared),
        pages=[page_of(one, shared) for one in compared.found],
        level=f"{100 * (1 - compared.found[0].terms.alpha):g} %" if compared.found else "",
        version=__version__,
    )


def page_of(found: Comparison, shared: list[Difference], shown_flips: int = SHOWN_FLIPS) -> ComparisonPage:
    """Returns a comparison as the template shows it.

    Args:
        found: the comparison.
        shared: the differences that are on one axis with its own.
        shown_flips: so many are shown each way.
    """
    told = findings(found)
    told.pop("Differs", None)
    of_categories = [one.difference for one in found.categories]
    return ComparisonPage(
        found=found,
        name=evaluation_name(found),
        chart=draw(found.difference, found.terms, [found.difference]),
        shared_chart=draw(found.difference, found.terms, shared),
        sides=side_rows(found),
        findings=told,
        differs=differing_rows(found),
        categories=[
            (row, one.change, draw(one.difference, found.terms, of_categories))
            for row, one in zip(category_rows(found), found.categories, strict=True)
        ],
        broken=found.broken[:shown_flips],
        fixed=found.fixed[:shown_flips],
    )


def draw(difference: Difference, terms: Terms, beside: Iterable[Difference]) -> Chart:
    """Returns the chart of a difference, on an axis that holds others, too."""
    limit = terms.max_drop if terms.direction == "lower" else -terms.max_drop
    shown = [value for one in beside for value in (one.interval.low, one.interval.high, one.mean) if isfinite(value)]
    lowest, highest = min(0.0, limit, *shown), max(0.0, limit, *shown)
    width = (highest - lowest) or 1.0
    lowest, width = lowest - _MARGIN * width, width * (1 + 2 * _MARGIN)

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - lowest) / width)), 2)

    low, high = difference.interval.low, difference.interval.high
    at_limit, at_zero = place(limit), place(0.0)
    return Chart(
        low=place(low),
        high=place(high),
        mean=place(difference.mean),
        ends=[place(end) for end in (low, high) if isfinite(end)],
        zero=at_zero,
        limit=at_limit,
        limit_text=f"{limit:+g}",
        beyond_from=at_limit if terms.direction == "lower" else 0.0,
        beyond_width=round(100 - at_limit, 2) if terms.direction == "lower" else at_limit,
        zero_anchor=_anchor(at_zero),
        limit_anchor=_anchor(at_limit),
        label=f"Difference {difference.mean:+.4f}, from {low:+.4f} to {high:+.4f}, limit {limit:+g}",
    )


def _anchor(place: float) -> str:
    return "start" if place < _NEAR_END else "end" if place > 100 - _NEAR_END else "middle"
