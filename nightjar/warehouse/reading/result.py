"""What a query is asked with, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Parameters = Sequence[object] | Mapping[str, object]
"""Values for ``?`` in a statement, or for ``$name``."""

AskedQuery = tuple[str, Parameters | None]
"""A statement, and the values of its parameters."""


@dataclass(frozen=True)
class QueryResult:
    """The answer to a query.

    Attributes:
        columns: names; of two equal ones the second is called ``name_2``.
        types: DuckDB's name of each column's type, for instance ``DOUBLE`` or ``JSON``.
        rows: one tuple per row, values as Python's own types; JSON is text.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """Returns the rows, each from column to value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]
