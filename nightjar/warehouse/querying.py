"""Runs one statement that only reads, on a connection that can do nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import MEMORY_LIMIT, SPILL_LIMIT, explained, quoted
from nightjar.warehouse.folder import Folder

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_TIMEOUT_SECONDS = 60.0
"""How long a query may run, unless the caller says otherwise."""

LARGEST_ANSWER_BYTES = 2_000_000_000
"""How much memory the rows of an answer may take."""

Parameters = Sequence[object] | Mapping[str, object]
"""Values for ``?`` in a statement, or for ``$name``."""

_READING = {
    duckdb.StatementType.SELECT,
    duckdb.StatementType.EXPLAIN,
    duckdb.StatementType.MULTI,  # what a PIVOT without a list of values is
}

_EXPLAIN = re.compile(r"\s*EXPLAIN\b(?:\s*\([^)]*\))?(?:\s*ANALYZE\b)?", re.IGNORECASE)

_CHUNK_ROWS = 10_000
_CELL_BYTES = 80
"""What a number costs as an object of Python, its share of the row included."""


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


def connect_locked(folder: Folder, spill: Path) -> duckdb.DuckDBPyConnection:
    """Returns a connection that can read the files of a warehouse and nothing else, and whose settings are fixed.

    Args:
        folder: the warehouse.
        spill: where it puts what does not fit into memory; made and removed by DuckDB.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY_LIMIT,
            "threads": min(4, os.cpu_count() or 1),
            "max_temp_directory_size": SPILL_LIMIT,
            "temp_directory": str(spill),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    folder.prepare(connection)
    connection.execute(
        f"SET TimeZone = 'UTC'; SET parquet_metadata_cache = true; "
        f"SET allowed_directories = [{quoted(folder.readable())}]; "
        "SET enable_external_access = false; SET lock_configuration = true"
    )
    return connection


def run_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters | None,
    timeout_seconds: float,
) -> QueryResult:
    """Runs one statement on a locked connection.

    Raises:
        WarehouseError: it is not one reading statement, DuckDB refuses it, it takes too long, or answers too much.
    """
    with _answering(connection, sql, parameters, timeout_seconds) as cursor:
        described = cursor.description
        rows = _fetch(cursor)
    names = _distinct(column[0] for column in described)
    return QueryResult(names, tuple(str(column[1]) for column in described), rows)


def run_arrow_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters | None,
    timeout_seconds: float,
) -> pa.Table:
    """Runs one statement on a locked connection, and returns an Arrow table; raises like ``run_query``."""
    import pyarrow as pa

    with _answering(connection, sql, parameters, timeout_seconds) as cursor:
        batches, size = [], 0
        reader = cursor.to_arrow_reader(_CHUNK_ROWS)
        for batch in reader:
            size += batch.nbytes
            _check_size(size)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


@contextmanager
def _answering(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None, timeout_seconds: float
) -> Iterator[duckdb.DuckDBPyConnection]:
    with explained("The query failed"):
        statement = _one_reading(connection, sql)
        with _limited(connection, timeout_seconds):
            yield connection.execute(statement, parameters)


def _one_reading(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise WarehouseError(f"Expected one SQL statement, found {len(statements)}.")
    statement = statements[0]
    if statement.type is duckdb.StatementType.EXPLAIN:  # EXPLAIN ANALYZE runs what it explains
        _one_reading(connection, _EXPLAIN.sub("", _without_comments(statement.query), count=1))
    elif statement.type not in _READING:
        raise WarehouseError(
            f"{statement.type.name} is refused: a query only reads the warehouse. "
            "Use SELECT, WITH, FROM, PIVOT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN."
        )
    return statement


def _without_comments(sql: str) -> str:
    """What begins a statement, without comments before or between its first words."""
    return re.sub(r"^(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)+", "", sql, flags=re.DOTALL)


def _fetch(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    while chunk := cursor.fetchmany(_CHUNK_ROWS):
        rows += chunk
        size += sum(_CELL_BYTES + (len(cell) if isinstance(cell, str | bytes) else 0) for row in chunk for cell in row)
        _check_size(size)
    return rows


def _check_size(size: int) -> None:
    if size > LARGEST_ANSWER_BYTES:
        raise WarehouseError(
            f"The answer is larger than {LARGEST_ANSWER_BYTES / 1e9:g} GB. Narrow it (LIMIT, fewer columns), "
            "or write it to a file with 'nightjar warehouse export'."
        )


@contextmanager
def _limited(connection: duckdb.DuckDBPyConnection, timeout_seconds: float) -> Iterator[None]:
    timer = Timer(timeout_seconds, connection.interrupt)
    timer.daemon = True
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
