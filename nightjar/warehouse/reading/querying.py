"""Runs one statement that only reads, on a connection that can do nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import TIMEOUT_MAX, Event, Thread
from typing import TYPE_CHECKING, Any

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import MEMORY_LIMIT, SPILL_LIMIT, explained, quoted
from nightjar.warehouse.reading.memory import bounded_memory
from nightjar.warehouse.reading.reading_only import one_reading, one_statement
from nightjar.warehouse.storage.store import Readable

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_TIMEOUT_SECONDS = 60.0
"""How long a query may run, unless the caller says otherwise."""

LARGEST_ANSWER_BYTES = 2_000_000_000
"""How much memory the rows of an answer may take."""

Parameters = Sequence[object] | Mapping[str, object]
"""Values for ``?`` in a statement, or for ``$name``."""

LARGEST_PROCESS_BYTES = 2 * LARGEST_ANSWER_BYTES
"""How much memory this process may take beyond what it has while a query runs: DuckDB's share and the answer."""

_ARROW_ERRORS = {
    "INTERRUPT": duckdb.InterruptException,
    "IO": duckdb.IOException,
    "Out of Memory": duckdb.OutOfMemoryException,
}

_AGAIN_SECONDS = 0.05
"""How long after an interrupt the next one comes: one that comes before the query has begun is lost."""

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 64_000_000
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
    timeout_seconds: float,
) -> QueryResult:
    """Runs one statement on a locked connection.

    Args:
        connection: nothing else uses it meanwhile.
        sql: the statement.
        parameters: values for its placeholders.
        timeout_seconds: how long it may run, more than 0. DuckDB looks at the time between its steps: one call of a
            function, such as ``levenshtein`` of two very long texts, ends first.

    Raises:
        WarehouseError: it is not one reading statement, DuckDB refuses it, it takes too long, or answers too much;
            or there is no time for it.
    """
    with _checked(connection, sql, timeout_seconds) as statement:
        return _answer(connection.execute(statement, parameters))


def run_statement(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None) -> QueryResult:
    """Runs any one statement, as long as it takes.

    Raises:
        WarehouseError: it is more than one statement, DuckDB refuses it, or it answers too much.
    """
    with explained("The statement failed"):
        return _answer(connection.execute(one_statement(connection, sql), parameters))


def run_arrow_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters | None,
    timeout_seconds: float,
) -> pa.Table:
    """Runs one statement on a locked connection, and returns an Arrow table; raises like ``run_query``."""
    import pyarrow as pa

    with _checked(connection, sql, timeout_seconds) as statement:
        reader = connection.sql(statement, params=parameters).to_arrow_reader(_CHUNK_ROWS)
        try:
            return pa.Table.from_batches(_within_size(reader), reader.schema)
        except OSError as error:  # what Arrow makes of DuckDB's errors
            raise _ARROW_ERRORS.get(str(error).partition(" Error: ")[0], duckdb.Error)(str(error)) from error


def _answer(cursor: duckdb.DuckDBPyConnection) -> QueryResult:
    described = cursor.description or []
    names = _distinct(column[0] for column in described)
    return QueryResult(names, tuple(str(column[1]) for column in described), _fetch(cursor))


def _within_size(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in reader:
        size += batch.nbytes
        _check_size(size)
        yield batch


@contextmanager
def _checked(connection: duckdb.DuckDBPyConnection, sql: str, timeout_seconds: float) -> Iterator[duckdb.Statement]:
    if not timeout_seconds > 0:
        raise WarehouseError(f"A query needs time: expected more than 0 seconds, found {timeout_seconds:g}.")
    with explained("The query failed"):
        statement = one_reading(connection, sql)
        with _limited(connection, timeout_seconds), bounded_memory(LARGEST_PROCESS_BYTES):
            yield statement


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


@contextmanager
def _limited(connection: duckdb.DuckDBPyConnection, timeout_seconds: float) -> Iterator[None]:
    ended = Event()
    watch = Thread(target=_interrupt, args=(connection, timeout_seconds, ended), name="nightjar-timeout", daemon=True)
    watch.start()
    try:
        yield
    except (MemoryError, duckdb.OutOfMemoryException) as error:
        raise WarehouseError(
            f"The query takes too much memory, or more than {SPILL_LIMIT} of disk. Narrow it, or take it apart."
        ) from error
    except duckdb.InterruptException as error:
        raise WarehouseError(
            f"The query was stopped after {timeout_seconds:g} s. Narrow it, or take it apart."
        ) from error
    finally:
        ended.set()
        watch.join()


def _interrupt(connection: duckdb.DuckDBPyConnection, timeout_seconds: float, ended: Event) -> None:
    """Stops what runs when the time is over, and again until it has ended."""
    pause = min(timeout_seconds, TIMEOUT_MAX)
    while not ended.wait(pause):
        connection.interrupt()
        pause = _AGAIN_SECONDS


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        unique, number = name, 2
        while unique in found:
            unique, number = f"{name}_{number}", number + 1
        found.append(unique)
    return tuple(found)
