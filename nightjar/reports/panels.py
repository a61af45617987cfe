"""``Panel``: a result as text for a terminal, and as HTML for a cell of a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from math import isfinite
from shutil import get_terminal_size

from rich.console import Console
from rich.text import Text

from nightjar.core.text import harmless
from nightjar.reports.html import render
from nightjar.reports.tables import columns, labelled
from nightjar.statistics.intervals import Interval

_WIDTH = 120
"""The width of text that is not printed on a terminal."""


@dataclass(frozen=True)
class Span:
    """A value with its interval as positions in percent of the width of a cell."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class PanelTable:
    """A table of a panel.

    Attributes:
        numbers: the headings of columns that are aligned to the right.
        folded: the headings of columns whose cells may take several lines; None means all columns.
        spans: a drawing of an interval for each row, or None for a row without an interval. Only HTML shows them.
        more: the number of rows that are left out.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numbers: frozenset[str] = frozenset()
    folded: frozenset[str] | None = None
    spans: Sequence[Span | None] = ()
    more: int = 0


@dataclass(frozen=True)
class Panel:
    """The content of a result. ``status`` selects a colour; ``drawing`` is for the terminal, ``chart`` is safe HTML."""

    title: str
    status: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[PanelTable] = ()
    drawing: Sequence[str] = ()
    chart: str = ""
    link: str | None = None
    link_text: str = "Open in nightjar view"

    def text(self) -> str:
        """Returns plain text as wide as the terminal, without control characters."""
        width = get_terminal_size((_WIDTH, 0)).columns
        console = Console(file=StringIO(), width=width, color_system=None, highlight=False, force_jupyter=False)
        with console.capture() as captured:
            console.print(Text(harmless(f"{self.title} {self.status}".rstrip())))
            for line in self.drawing:
                console.print(Text(harmless(line)), no_wrap=True, crop=True)
            if self.lines:
                console.print(labelled(self.lines))
            for table in self.tables:
                if table.title:
                    console.print(Text(f"\n{harmless(table.title)}"))
                console.print(columns(table.headings, table.rows, numbers=table.numbers, folded=table.folded))
                if table.more:
                    console.print(f"… and {table.more:,} more rows")
            if self.link:
                console.print(Text(f"{self.link_text}: {harmless(self.link)}"), soft_wrap=True)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def html(self) -> str:
        """Returns HTML with its own style. Text is escaped; unpaired surrogates become question marks."""
        return render("panel.html", panel=self).encode("utf-8", "replace").decode()


def spans(intervals: Sequence[tuple[float | None, Interval]]) -> list[Span | None]:
    """Places values and intervals on one scale, which is 0 to 1 if all of them are in it.

    Returns an empty list if no interval is known.
    """
    known = [
        None if value is None or not isfinite(interval.low) else (interval.low, value, interval.high)
        for value, interval in intervals
    ]
    ends = [end for one in known if one for end in one]
    if not ends:
        return []
    lowest, highest = min(ends), max(ends)
    if lowest >= 0 and highest <= 1:
        lowest, highest = 0.0, 1.0
    width = (highest - lowest) or 1.0
    return [one and Span(*(round(100 * (end - lowest) / width, 2) for end in one)) for one in known]
