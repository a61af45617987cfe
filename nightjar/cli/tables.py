"""Tables for a terminal: what they show is folded, never cut, and obeyed by no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from nightjar.terminal import harmless


def labelled(lines: Mapping[str, str]) -> Table:
    """Returns lines that begin with what they are about."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in lines.items():
        table.add_row(f"{label}:", Text(harmless(text)))
    return table


def columns(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Returns rows below headings, the first column on the left and the others on the right; a ``Text`` as it is."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(harmless(heading), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text if isinstance(text, Text) else Text(harmless(text)) for text in row))
    return table
