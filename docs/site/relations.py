"""The reference of SQL: the tables, views and macros of the warehouse with their columns, and the named queries."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
from markdown_text import code, escaped, sentence, table

from nightjar.warehouse.reading.named_queries import named_queries
from nightjar.warehouse.reading.relations import define
from nightjar.warehouse.storage.records import Records
from nightjar.warehouse.storage.segments import Catalog

_INTRODUCTION = """# SQL

After this page, you know the columns of every table and view of the [warehouse](warehouse.md), and the parameters of
every named query."""
_VIEWS = """
    SELECT view_name, comment FROM duckdb_views() WHERE NOT internal AND schema_name = 'main' ORDER BY view_name
"""
_COLUMNS = """
    SELECT column_name, data_type, coalesce(comment, '') FROM duckdb_columns()
    WHERE schema_name = 'main' AND table_name = ? ORDER BY column_index
"""
_MACROS = """
    SELECT function_name, parameters, comment FROM duckdb_functions() WHERE NOT internal AND comment IS NOT NULL
    ORDER BY function_name
"""


def page() -> str:
    with duckdb.connect() as connection:
        define(connection, Catalog(), lambda _segment, _kind: "", Records())
        return "\n\n".join([_INTRODUCTION, *_views(connection), *_macros(connection), *_queries()])


def _views(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    yield "## Tables and views"
    for name, comment in connection.sql(_VIEWS).fetchall():
        columns = connection.execute(_COLUMNS, [name]).fetchall()
        yield f"### {name}"
        yield sentence(comment)
        yield table(
            ("column", "type", "meaning"), [(code(name), code(kind), escaped(note)) for name, kind, note in columns]
        )


def _macros(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    yield "## Table functions"
    for name, parameters, comment in connection.sql(_MACROS).fetchall():
        columns = connection.sql(f"DESCRIBE FROM {name}({', '.join('NULL' for _ in parameters)})").fetchall()
        yield f"### {name}({', '.join(parameters)})"
        yield sentence(comment)
        yield table(("column", "type"), [(code(column), code(kind)) for column, kind, *_ in columns])


def _queries() -> Iterator[str]:
    yield "## Named queries"
    yield "`nightjar sql NAME -P PARAMETER=VALUE` runs a named query."
    for query in named_queries().values():
        yield f"### Query {query.name}"
        yield escaped(query.about)
        if query.parameters:
            rows = [(code(each.usage), each.type, escaped(each.about)) for each in query.parameters]
            yield table(("parameter", "type", "meaning"), rows)
        yield f"```sql\n{query.text.strip()}\n```"
