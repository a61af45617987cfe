"""Runs one statement on a connection, with limits on its rights, memory, answer and time."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from nightjar.core.extras import require_extra
from nightjar.errors import WarehouseError
from nightjar.warehouse.database import MEMORY_LIMIT, SPILL_LIMIT, connect_scratch, explained, quoted
from nightjar.warehouse.reading.process import TimeLimit
from nightjar.warehouse.reading.reading_only import one_reading, one_statement
from nightjar.warehouse.reading.result import Columns, Parameters, QueryResult

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

LARGEST_ANSWER_BYTES = 2_000_000_000

_ARROW_ERRORS = {
    "Conversion": duckdb.ConversionException,
    "INTERNAL": duckdb.InternalException,
    "INTERRUPT": duckdb.InterruptException,
    "IO": duckdb.IOException,
    "Invalid Input": duckdb.InvalidInputException,
    "Out of Memory": duckdb.OutOfMemoryException,
    "Out of Range": duckdb.OutOfRangeException,
}
"""DuckDB's error classes by the start of the message, because Arrow raises all of DuckDB's errors as OSError."""

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 64_000_000
_CELL_BYTES = 80
"""The size of a number as a Python object, including its share of the row."""

_COLUMN_BYTES = 500
_INTERRUPT_AGAIN_SECONDS = 0.05
"""An interrupt that arrives before the query has started is lost, so it is repeated."""

Answer = TypeVar("Answer")


def connect_locked(
    prepare: Callable[[duckdb.DuckDBPyConnection], str], spill: Path, file: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Connects with the right to read only the files that ``prepare`` (see ``Store.prepare``) names.

    ``file`` is a database that is of no use afterwards; None means a database in memory.
    """
    connection = connect_scratch(spill, MEMORY_LIMIT, file=file)
    try:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
        readable = prepare(connection)
        connection.execute(
            "SET GLOBAL parquet_metadata_cache = true; "
            f"SET allowed_directories = [{quoted(readable)}]; "
            "SET enable_external_access = false; SET lock_configuration = true"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def run_query(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None) -> QueryResult:
    with _explained(connection):
        return _answer(connection.execute(one_reading(connection, sql), parameters))


def pack_rows(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters | None,
    largest_bytes: int | None = None,
) -> tuple[QueryResult, list[bytes]]:
    """Returns the result without its rows, and the rows in pickled parts."""
    with _explained(connection):
        cursor = connection.execute(one_reading(connection, sql), parameters)
        return _described(cursor), [pickle.dumps(chunk) for chunk in _chunks(cursor, largest_bytes)]


def run_columns_query(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None) -> Columns:
    with _explained(connection):
        found = connection.execute(one_reading(connection, sql), parameters).fetchnumpy()
        _check_size(sum(_array_size(values) for values in found.values()))
        return {name: _filled(values) for name, values in found.items()}


def run_arrow_query(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None) -> pa.Table:
    pa = require_extra("pyarrow", "datasets", "An Arrow table")
    with _explained(connection):
        statement = one_reading(connection, sql)
        reader = connection.sql(statement, params=parameters).to_arrow_reader(_CHUNK_ROWS)
        try:
            return pa.Table.from_batches(_within_size(reader), reader.schema)
        except OSError as error:
            raise _ARROW_ERRORS.get(str(error).partition(" Error: ")[0], duckdb.Error)(str(error)) from error


def run_statement(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None) -> QueryResult:
    with explained("The statement failed"), _stopped_on_error(connection):
        return _answer(connection.execute(one_statement(connection, sql), parameters))


def run_stoppable(work: Callable[[], Answer], connection: duckdb.DuckDBPyConnection, limit: TimeLimit) -> Answer:
    """Runs a query in a thread. Interrupts the query when the time is up, or at Ctrl-C, which DuckDB itself may ignore.

    Nothing else may use the connection. KeyboardInterrupt is raised once the query has ended.
    """
    seconds = limit.left()
    with ThreadPoolExecutor(1, "nightjar-query") as pool:
        answer = pool.submit(work)
        try:
            return answer.result(seconds)
        except TimeoutError:
            if answer.done():
                raise
            raise limit.over() from None
        finally:
            while not answer.done():
                connection.interrupt()
                wait([answer], _INTERRUPT_AGAIN_SECONDS)


@contextmanager
def _explained(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    with explained("The query failed"):
        try:
            with _stopped_on_error(connection):
                yield
        except (MemoryError, duckdb.OutOfMemoryException) as error:
            raise WarehouseError(
                f"The query takes too much memory, or more than {SPILL_LIMIT} of disk. Narrow it, or split it."
            ) from error


@contextmanager
def _stopped_on_error(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Stops a query after an error. Otherwise, DuckDB's threads would produce rows until the next statement."""
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error, MemoryError, RuntimeError):
            connection.execute("SELECT 1")
        raise


def _answer(cursor: duckdb.DuckDBPyConnection) -> QueryResult:
    described = _described(cursor)
    described.rows.extend(chain.from_iterable(_chunks(cursor)))
    return described


def _described(cursor: duckdb.DuckDBPyConnection) -> QueryResult:
    described = cursor.description or []
    _check_size(len(described) * _COLUMN_BYTES)
    return QueryResult(_distinct(column[0] for column in described), tuple(str(column[1]) for column in described), [])


def _within_size(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in reader:
        size += batch.nbytes
        _check_size(size)
        yield batch


def _chunks(cursor: duckdb.DuckDBPyConnection, largest_bytes: int | None = None) -> Iterator[list[tuple[Any, ...]]]:
    """Yields the rows in chunks of limited size; the first chunk is one row."""
    rows, size, count = 0, 1, 1
    while chunk := cursor.fetchmany(count):
        rows += len(chunk)
        size += sum(_size(row) for row in chunk)
        _check_size(size, largest_bytes)
        yield chunk
        count = max(1, min(8 * count, _CHUNK_ROWS, rows * _CHUNK_BYTES // size))


def _array_size(values: NDArray[Any]) -> int:
    return sum(map(_size, values)) if values.dtype == object else values.nbytes


def _filled(values: NDArray[Any]) -> NDArray[Any]:
    """Replaces missing values: by NaN in a column of numbers, by None in any other column."""
    import numpy as np

    if not isinstance(values, np.ma.MaskedArray):
        return values
    is_number = np.issubdtype(values.dtype, np.number)
    filled: NDArray[Any] = np.array(values.data, dtype=float if is_number else object)
    filled[np.ma.getmaskarray(values)] = np.nan if is_number else None
    return filled


def _size(value: object) -> int:
    if isinstance(value, str | bytes):
        return _CELL_BYTES + len(value)
    if isinstance(value, list | tuple):
        return _CELL_BYTES + sum(map(_size, value))
    if isinstance(value, dict):
        return _CELL_BYTES + sum(map(_size, value.keys())) + sum(map(_size, value.values()))
    return _CELL_BYTES


def _check_size(size: int, largest_bytes: int | None = None) -> None:
    largest = largest_bytes or LARGEST_ANSWER_BYTES
    if size > largest:
        raise WarehouseError(
            f"The answer is larger than {largest / 1e9:g} GB. Narrow it (LIMIT, fewer columns), "
            "or write it to a file with 'nightjar warehouse export'."
        )


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    numbers: Counter[str] = Counter()
    for name in names:
        unique = name
        while unique in found:
            numbers[name] += 1
            unique = f"{name}_{numbers[name] + 1}"
        found[unique] = None
    return tuple(found)
