"""The table that benchmarks print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    case: str
    raw: str
    nightjar: str
    ratio: str
    reach: str


def print_table(raw: str, rows: Iterable[Row]) -> None:
    """Prints the table, also when a row fails; ``raw`` names what Nightjar is compared with."""
    table = Table("case", raw, "Nightjar", "ratio", "reach")
    try:
        for row in rows:
            table.add_row(row.case, row.raw, row.nightjar, row.ratio, row.reach)
    finally:
        Console(width=150).print(table)
