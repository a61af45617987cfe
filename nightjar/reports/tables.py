"""Tables and labelled lines for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from nightjar.core.text import harmless


def labelled(lines: Mapping[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in lines.items():
        table.add_row(Text(f"{harmless(label)}:"), Text(harmless(text)))
    return table


def columns(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    numbers: Collection[str] | None = None,
    folded: Collection[str] | None = None,
    has_rule: bool = True,
) -> Table:
    """Returns a table for a terminal. Control characters in strings are replaced; a ``Text`` is shown as it is.

    ``numbers`` are the headings of columns that are aligned to the right; None means all columns but the first.
    ``folded`` are the headings of columns whose cells may take several lines; None means all columns.
    """
    table = Table(box=box.SIMPLE_HEAD if has_rule else None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        is_number = heading != headings[0] if numbers is None else heading in numbers
        no_wrap = folded is not None and heading not in folded
        table.add_column(harmless(heading), justify="right" if is_number else "left", no_wrap=no_wrap, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(harmless(cell)) for cell in row))
    return table
