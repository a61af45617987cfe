"""Runs one statement that only reads, on a connection that can do nothing else."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import MEMORY_LIMIT, SPILL_LIMIT, explained, quoted
from nightjar.warehouse.reading.reading_only import one_reading, one_statement
from nightjar.warehouse.reading.running import TimeLimit, bounded_memory, run_stoppable
from nightjar.warehouse.storage.store import Readable

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_ANSWER_BYTES = 2_000_000_000
"""How much memory the columns and rows of an answer may take."""

Parameters = Sequence[object] | Mapping[str, object]
"""Values for ``?`` in a statement, or for ``$name``."""

LARGEST_PROCESS_BYTES = 2 * LARGEST_ANSWER_BYTES
"""How much memory this process may take beyond what it has while a query runs: DuckDB's share and the answer."""

_ARROW_ERRORS = {
    "Conversion": duckdb.ConversionException,
    "INTERNAL": duckdb.InternalException,
    "INTERRUPT": duckdb.InterruptException,
    "IO": duckdb.IOException,
    "Invalid Input": duckdb.InvalidInputException,
    "Out of Memory": duckdb.OutOfMemoryException,
    "Out of Range": duckdb.OutOfRangeException,
}
"""The name that DuckDB's message begins with, to the class that it has where Arrow has made it another."""

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 64_000_000
_CELL_BYTES = 80
"""What a number costs as an object of Python, its share of the row included."""

_COLUMN_BYTES = 500
"""What a column costs by its name and type."""


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


def connect_locked(store: Readable, spill: Path) -> duckdb.DuckDBPyConnection:
    """Returns a connection that can read the files of a warehouse and nothing else, and whose settings are fixed.

    Args:
        store: the warehouse.
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
    try:
        store.prepare(connection)
        connection.execute(
            f"SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false; SET GLOBAL parquet_metadata_cache = true; "
            f"SET allowed_directories = [{quoted(store.readable())}]; "
            "SET enable_external_access = false; SET lock_configuration = true"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def run_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters | None,
    limit: TimeLimit,
) -> QueryResult:
    """Runs one statement on a locked connection.

    Args:
        connection: nothing else uses it meanwhile.
        sql: the statement.
        parameters: values for its placeholders.
        limit: when it is stopped. DuckDB looks for that between its steps: planning the statement, and one call of a
            function, such as ``levenshtein`` of two very long texts, end first.

    Raises:
        WarehouseError: it is not one reading statement, DuckDB refuses it, it takes too long, or answers too much.
    """
    with _bounded(connection, sql) as statement:
        return run_stoppable(lambda: _answer(connection.execute(statement, parameters)), connection, limit)


def run_arrow_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters | None,
    limit: TimeLimit,
) -> pa.Table:
    """Runs one statement on a locked connection, and returns an Arrow table; raises like ``run_query``."""
    with _bounded(connection, sql) as statement:
        return run_stoppable(lambda: _arrow_answer(connection, statement, parameters), connection, limit)


def run_statement(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None) -> QueryResult:
    """Runs any one statement, as long as it takes.

    Raises:
        WarehouseError: it is more than one statement, DuckDB refuses it, or it answers too much.
    """
    with explained("The statement failed"):
        statement = one_statement(connection, sql)
        limit = TimeLimit(math.inf)
        return run_stoppable(lambda: _answer(connection.execute(statement, parameters)), connection, limit)


def _arrow_answer(
    connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, parameters: Parameters | None
) -> pa.Table:
    import pyarrow as pa

    reader = connection.sql(statement, params=parameters).to_arrow_reader(_CHUNK_ROWS)
    try:
        return pa.Table.from_batches(_within_size(reader), reader.schema)
    except OSError as error:  # what Arrow makes of DuckDB's errors
        raise _ARROW_ERRORS.get(str(error).partition(" Error: ")[0], duckdb.Error)(str(error)) from error


def _answer(cursor: duckdb.DuckDBPyConnection) -> QueryResult:
    described = cursor.description or []
    _check_size(len(described) * _COLUMN_BYTES)
    names = _distinct(column[0] for column in described)
    return QueryResult(names, tuple(str(column[1]) for column in described), _fetch(cursor))


def _within_size(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in reader:
        size += batch.nbytes
        _check_size(size)
        yield batch


@contextmanager
def _bounded(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[duckdb.Statement]:
    with explained("The query failed"):
        statement = one_reading(connection, sql)
        try:
            with bounded_memory(LARGEST_PROCESS_BYTES):
                yield statement
        except (MemoryError, duckdb.OutOfMemoryException) as error:
            raise WarehouseError(
                f"The query takes too much memory, or more than {SPILL_LIMIT} of disk. Narrow it, or take it apart."
            ) from error


def _fetch(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    size, count = 0, 1
    while chunk := cursor.fetchmany(count):
        rows += chunk
        size += sum(_size(row) for row in chunk)
        _check_size(size)
        count = max(1, min(8 * count, _CHUNK_ROWS, len(rows) * _CHUNK_BYTES // size))
    return rows


def _size(value: object) -> int:
    """About the memory that a value takes."""
    if isinstance(value, str | bytes):
        return _CELL_BYTES + len(value)
    if isinstance(value, list | tuple):
        return _CELL_BYTES + sum(map(_size, value))
    if isinstance(value, dict):
        return _CELL_BYTES + sum(map(_size, value.keys())) + sum(map(_size, value.values()))
    return _CELL_BYTES


def _check_size(size: int) -> None:
    if size > LARGEST_ANSWER_BYTES:
        raise WarehouseError(
            f"The answer is larger than {LARGEST_ANSWER_BYTES / 1e9:g} GB. Narrow it (LIMIT, fewer columns), "
            "or write it to a file with 'nightjar warehouse export'."
        )


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Numbers equal names; takes time as there are names, however many are equal."""
    found: dict[str, None] = {}
    numbers: Counter[str] = Counter()
    for name in names:
        unique = name
        while unique in found:
            numbers[name] += 1
            unique = f"{name}_{numbers[name] + 1}"
        found[unique] = None
    return tuple(found)
