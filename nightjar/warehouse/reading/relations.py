"""Defines in a DuckDB connection what people ask: the relations of the segments that count, and the views over them.

The schema ``segments`` holds ``runs``, ``rollouts``, ``attempts``, ``examples``, ``prices``, ``nights``,
``comparisons``, ``gate_decisions`` and ``notes``; ``views.sql`` builds on these, whether they are views over Parquet
files, as here, or tables of a service.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

import duckdb

from nightjar.warehouse.database import parquet, quoted
from nightjar.warehouse.storage.prices import Price
from nightjar.warehouse.storage.segments import KINDS, Catalog, Source
from nightjar.warehouse.storage.store import LINE_FILES, Records

PRICES_COLUMNS = "model VARCHAR NOT NULL, since TIMESTAMPTZ NOT NULL, input DOUBLE NOT NULL, output DOUBLE NOT NULL"
"""The columns of the table of prices."""

FileOf = Callable[[str, str], str]
"""From a segment's id and a kind to where DuckDB finds the file."""


def define(connection: duckdb.DuckDBPyConnection, catalog: Catalog, file_of: FileOf, records: Records) -> None:
    """Makes everything that can be asked of a catalog."""
    define_segments(connection, catalog, file_of, records)
    connection.execute(views_script())


def define_segments(connection: duckdb.DuckDBPyConnection, catalog: Catalog, file_of: FileOf, records: Records) -> None:
    """Makes, or replaces, what the views build on; they stay as they are, and are of the new segments."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS segments")
    for kind in KINDS:
        sources = catalog.example_sources() if kind == "examples" else catalog.sources()
        connection.execute(f"CREATE OR REPLACE VIEW segments.{kind} AS {selection(kind, sources, file_of)}")
    define_records(connection, records)


def define_records(connection: duckdb.DuckDBPyConnection, records: Records) -> None:
    """Makes, or replaces, the tables of what is kept beside the segments."""
    _define_prices(connection, records.prices)
    for file, lines in zip(LINE_FILES, records.lines, strict=True):
        _define_lines(connection, f"segments.{file.table}", file.columns, lines)


def selection(kind: str, sources: Sequence[Source], file_of: FileOf) -> str:
    """Returns the statement that selects all rows of a kind that count."""
    if not sources:
        return _nothing(kind)
    return " UNION ALL ".join(_scan(kind, source, file_of) for source in sources)


def _define_prices(connection: duckdb.DuckDBPyConnection, prices: Sequence[Price]) -> None:
    connection.execute(f"CREATE OR REPLACE TABLE segments.prices ({PRICES_COLUMNS})")
    if prices:
        rows = ", ".join(f"({quoted(p.model)}, {quoted(p.since.isoformat())}, {p.input}, {p.output})" for p in prices)
        connection.execute(f"INSERT INTO segments.prices VALUES {rows}")  # noqa: S608 - quoted


def _define_lines(connection: duckdb.DuckDBPyConnection, table: str, columns: str, lines: Sequence[str]) -> None:
    connection.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    if lines:
        connection.execute(f"INSERT INTO {table} SELECT unnest(?::JSON[])", [lines])


@cache
def tables_script() -> str:
    """Returns the statements that make empty tables of the kinds of a segment."""
    return (resources.files(__package__) / "tables.sql").read_text("utf-8")


@cache
def views_script() -> str:
    """Returns the statements that make the views."""
    return (resources.files(__package__) / "views.sql").read_text("utf-8")


@cache
def views_version() -> str:
    """Returns what tells the views apart from those of another Nightjar."""
    return hashlib.sha256(f"{tables_script()}{views_script()}".encode()).hexdigest()


def _scan(kind: str, source: Source, file_of: FileOf) -> str:
    scan = f"SELECT * FROM {parquet(*(file_of(segment_id, kind) for segment_id in source.segment_ids))}"  # noqa: S608
    if not source.without:
        return scan
    return f"{scan} WHERE run_id NOT IN ({', '.join(map(quoted, source.without))})"


@cache
def _nothing(kind: str) -> str:
    """A selection of no rows that has the columns of a kind."""
    with duckdb.connect(":memory:") as empty:
        empty.execute(tables_script())
        columns = empty.execute(f"DESCRIBE {kind}").fetchall()
    return "SELECT " + ", ".join(f"NULL::{column[1]} AS {column[0]}" for column in columns) + " WHERE false"
