"""Defines the schema ``segments`` over the Parquet files and records of a warehouse, and the views over it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

import duckdb

from nightjar.core.failures import (
    ERROR_CATEGORIES,
    LIMIT_CATEGORIES,
    MODEL_CATEGORIES,
    OUTCOMES_OF_ERRORS,
    REFUSAL,
    TIMED_OUT_CONDITION,
)
from nightjar.statistics.coverage import LEAST_COVERAGE
from nightjar.warehouse.database import parquet, quoted
from nightjar.warehouse.storage.records import LINE_FILES, Records
from nightjar.warehouse.storage.segments import KINDS, Catalog, Source
from nightjar.warehouse.storage.tables import in_current_form, tables_script

PRICES_COLUMNS = "model VARCHAR NOT NULL, since TIMESTAMPTZ NOT NULL, input DOUBLE NOT NULL, output DOUBLE NOT NULL"

_VIEWS = ("runs", "questions", "pairs", "steps", "records", "texts")

FileOf = Callable[[str, str], str]


def define(connection: duckdb.DuckDBPyConnection, catalog: Catalog, file_of: FileOf, records: Records) -> None:
    define_segments(connection, catalog, file_of, records)
    connection.execute(views_script())


def define_segments(connection: duckdb.DuckDBPyConnection, catalog: Catalog, file_of: FileOf, records: Records) -> None:
    """Replaces existing relations in the schema ``segments``, so that existing views read the new segments."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS segments")
    for kind in KINDS:
        sources = catalog.example_sources() if kind == "examples" else catalog.sources()
        connection.execute(f"CREATE OR REPLACE VIEW segments.{kind} AS {selection(kind, sources, file_of)}")
    define_records(connection, records)


def define_records(connection: duckdb.DuckDBPyConnection, records: Records) -> None:
    connection.execute(f"CREATE OR REPLACE TABLE segments.prices ({PRICES_COLUMNS})")
    if prices := records.prices:
        rows = ", ".join(f"({quoted(p.model)}, {quoted(p.since.isoformat())}, {p.input}, {p.output})" for p in prices)
        connection.execute(f"INSERT INTO segments.prices VALUES {rows}")  # noqa: S608 - quoted
    for file, lines in zip(LINE_FILES, records.lines, strict=True):
        connection.execute(f"CREATE OR REPLACE TABLE segments.{file.table} ({file.columns})")
        if lines:
            connection.execute(f"INSERT INTO segments.{file.table} SELECT unnest(?::JSON[])", [lines])


def selection(kind: str, sources: Sequence[Source], file_of: FileOf) -> str:
    return in_current_form(kind, [(_rows(kind, source, file_of), source.schema) for source in sources])


@cache
def views_script() -> str:
    folder = resources.files(__package__) / "views"
    return _macros_of_constants() + "\n".join((folder / f"{name}.sql").read_text("utf-8") for name in _VIEWS)


def _macros_of_constants() -> str:
    errors = "\n".join(f"    WHEN list_contains(chain, '{n}') THEN '{c}'" for n, c in ERROR_CATEGORIES.items())
    limits = "\n".join(f"    WHEN stop_condition = '{n}' THEN '{c}'" for n, c in LIMIT_CATEGORIES.items())
    outcomes = "\n".join(f"    WHEN list_contains(chain, '{n}') THEN '{o}'" for n, o in OUTCOMES_OF_ERRORS.items())
    models = ", ".join(f"'{category}'" for category in sorted(MODEL_CATEGORIES))
    return f"""
CREATE OR REPLACE MACRO category_of_error(chain) AS CASE
{errors}
    ELSE 'system'
END;
CREATE OR REPLACE MACRO category_of_answer(reward, said, category, stop_condition, lacks_answer) AS CASE
    WHEN category IS NOT NULL THEN category
    WHEN reward > 0 THEN NULL
{limits}
    WHEN regexp_matches(said, {quoted(REFUSAL)}, 'i') THEN 'refusal'
    WHEN said <> '' AND lacks_answer THEN 'format_error'
END;
CREATE OR REPLACE MACRO outcome_of_error(chain) AS CASE
{outcomes}
    ELSE 'failed'
END;
CREATE OR REPLACE MACRO outcome_of(error, error_chain, stop_condition, is_truncated) AS CASE
    WHEN error IS NOT NULL THEN outcome_of_error(string_split(coalesce(error_chain, error), ' -> '))
    WHEN stop_condition = '{TIMED_OUT_CONDITION}' THEN 'timed_out'
    WHEN is_truncated THEN 'truncated'
    ELSE 'scored'
END;
CREATE OR REPLACE MACRO is_model_error(category) AS category IN ({models});
CREATE OR REPLACE MACRO has_low_coverage(coverage) AS coalesce(coverage, 0) < {LEAST_COVERAGE};
"""


@cache
def views_version() -> str:
    return hashlib.sha256(f"{tables_script()}{views_script()}".encode()).hexdigest()


def _rows(kind: str, source: Source, file_of: FileOf) -> str:
    files = parquet(*(file_of(segment_id, kind) for segment_id in source.segment_ids))
    if not source.without:
        return files
    return f"{files} WHERE run_id NOT IN ({', '.join(map(quoted, source.without))})"
