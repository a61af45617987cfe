"""``sql``: asks the warehouse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nightjar.api.results import ArrowTable, TabularResult
from nightjar.core.text import counted, one_line
from nightjar.errors import WarehouseError
from nightjar.reports.panels import Panel, PanelTable
from nightjar.warehouse import QueryResult, Warehouse
from nightjar.warehouse.reading.named_queries import is_name, question
from nightjar.warehouse.reading.result import value_text

_SHOWN = 50
_LONGEST_CELL = 200
_NUMBER = re.compile(r"u?(int|bigint|hugeint|smallint|tinyint|double|float)(?!erval)", re.IGNORECASE)
"""Types of numbers in Arrow and in DuckDB."""


@dataclass(frozen=True, repr=False, eq=False)
class SqlResult(TabularResult):
    """The rows of a query. Values of JSON columns are text.

    Example:
        >>> found = sql("SELECT 1 AS one, 'a' AS letter")  # doctest: +SKIP
        >>> found.columns, found.rows  # doctest: +SKIP
        (['one', 'letter'], [(1, 'a')])
    """

    found: ArrowTable | QueryResult
    """An Arrow table, which keeps types for DataFrames. Without pyarrow, the rows."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.found.columns if isinstance(self.found, QueryResult) else self.found.column_names)

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python's types."""
        return self._first(len(self))

    def __len__(self) -> int:
        return len(self.found.rows) if isinstance(self.found, QueryResult) else int(self.found.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def panel(self) -> Panel:
        first = self._first(_SHOWN)
        rows = [[one_line(value_text(value), _LONGEST_CELL) for value in row] for row in first]
        types = self.found.types if isinstance(self.found, QueryResult) else self.found.schema.types
        kinds = zip(self.columns, types, strict=True)
        numbers = frozenset(name for name, kind in kinds if _NUMBER.match(str(kind)))
        table = PanelTable(self.columns, rows, numbers=numbers, more=len(self) - len(first))
        return Panel(counted(len(self), "row"), tables=[table] if self.columns else [])

    def _first(self, count: int) -> list[tuple[Any, ...]]:
        if isinstance(self.found, QueryResult):
            return self.found.rows[:count]
        return list(zip(*(column.to_pylist() for column in self.found.slice(0, count).columns), strict=True))

    def _arrow(self) -> ArrowTable:
        return self.found


def sql(query: str, *values: object, warehouse: str | Path | Warehouse | None = None, **named: object) -> SqlResult:
    """Runs one reading statement, or a named query such as ``hardest``, on the warehouse.

    Args:
        query: SQL of DuckDB, or the name of a query (``nightjar sql --list`` shows them).
        values: the values for ``?`` in the statement.
        warehouse: the warehouse to ask (default: where runs are published).
        named: the values for ``$name`` in the statement, or the parameters of the named query.

    Raises:
        WarehouseError: if there is no warehouse, if the statement is refused, or if it takes too long.

    Example:
        >>> sql("FROM leaderboard WHERE env_id = ?", "gsm8k")  # doctest: +SKIP
        >>> sql("hardest", env="gsm8k", limit=5).to_df("polars")  # doctest: +SKIP
    """
    if values and (named or is_name(query)):
        raise WarehouseError("Values for ? and values by name exclude each other; a named query takes values by name")
    asked = question(query, named)
    asked_of = Warehouse.of(warehouse)
    ask = asked_of.query_arrow if find_spec("pyarrow") else asked_of.query
    return SqlResult(ask(asked.sql, list(values) or asked.parameters))
