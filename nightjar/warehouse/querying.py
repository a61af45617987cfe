"""Runs one statement that only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained

QUERY_TIMEOUT_SECONDS = 60.0
"""How long a query may run, unless the caller says otherwise."""

Parameters = Sequence[object] | Mapping[str, object]
"""Values for ``?`` in a statement, or for ``$name``."""

_READING = {
    duckdb.StatementType.SELECT,
    duckdb.StatementType.EXPLAIN,
    duckdb.StatementType.MULTI,  # what a PIVOT without a list of values is
}


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


def run_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters | None,
    timeout_seconds: float,
) -> QueryResult:
    """Runs one statement on a connection that is read-only and locked down.

    Raises:
        WarehouseError: it is not one reading statement, DuckDB refuses it, or it takes too long.
    """
    with explained("The query failed"):
        statement = _one_reading(connection.extract_statements(sql))
        with _limited(connection, timeout_seconds):
            cursor = connection.execute(statement, parameters)
            rows = cursor.fetchall()
        described = cursor.description
    names = _distinct(column[0] for column in described)
    return QueryResult(names, tuple(str(column[1]) for column in described), rows)


def _one_reading(statements: list[duckdb.Statement]) -> duckdb.Statement:
    if len(statements) != 1:
        raise WarehouseError(f"Expected one SQL statement, found {len(statements)}.")
    statement = statements[0]
    if statement.type not in _READING:
        raise WarehouseError(
            f"{statement.type.name} is refused: a query only reads the warehouse. "
            "Use SELECT, WITH, FROM, PIVOT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN."
        )
    return statement


@contextmanager
def _limited(connection: duckdb.DuckDBPyConnection, timeout_seconds: float) -> Iterator[None]:
    timer = Timer(timeout_seconds, connection.interrupt)
    timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise WarehouseError(
            f"The query was stopped after {timeout_seconds:g} s. Narrow it, or take it apart."
        ) from error
    finally:
        timer.cancel()
        timer.join()


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        unique, number = name, 2
        while unique in found:
            unique, number = f"{name}_{number}", number + 1
        found.append(unique)
    return tuple(found)
