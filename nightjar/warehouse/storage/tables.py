"""The tables of a segment, as ``tables.sql`` declares them, and their columns by version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

FIRST_SCHEMA = 3
"""The version of the tables in the first release. Each column added since then raises the version by one."""

_TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\);", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^    (\w+) (.+?)(?: NOT NULL)?,?$", re.MULTILINE)
_ADDED_COLUMN = re.compile(r"^ALTER TABLE (\w+) ADD COLUMN (\w+) (.+);$", re.MULTILINE)

_IN_JSON = {
    "env_hash": "version_info ->> 'env_hash'",
    "scoring_hash": "version_info ->> 'scoring_hash'",
    "rescored_from": "metadata ->> 'rescored_from'",
    "protocol": "metadata ->> 'api_client_type'",
    "finish_reason": "trajectory ->> '$[#-1].response.finish_reason'",
    "model_ms": "list_sum(TRY_CAST(trajectory -> '$[*].latency_ms' AS DOUBLE[]))",
    "cached_calls": "len(list_filter(TRY_CAST(trajectory -> '$[*].response.is_cached' AS BOOLEAN[]), lambda one: one))",
}
"""SQL that reads the values of added columns from the JSON columns of the first release."""


@dataclass(frozen=True)
class Column:
    name: str
    sql_type: str
    schema: int

    @property
    def before(self) -> str:
        """SQL for the value in rows of earlier versions: from JSON if possible, otherwise NULL."""
        return _IN_JSON.get(self.name, f"NULL::{self.sql_type}")


@cache
def tables_script() -> str:
    return (resources.files(__package__) / "tables.sql").read_text("utf-8")


SCHEMA = FIRST_SCHEMA + len(_ADDED_COLUMN.findall(tables_script()))


@cache
def columns() -> Mapping[str, Sequence[Column]]:
    created = _TABLE.findall(tables_script())
    found = {
        table: [Column(name, sql_type, FIRST_SCHEMA) for name, sql_type in _COLUMN.findall(body)]
        for table, body in created
    }
    for schema, (table, name, sql_type) in enumerate(_ADDED_COLUMN.findall(tables_script()), start=FIRST_SCHEMA + 1):
        found[table].append(Column(name, sql_type, schema))
    return found


def in_current_form(kind: str, parts: Sequence[tuple[str, int]]) -> str:
    """Returns the statement that selects rows of several versions with the columns of the current version.

    ``parts`` are relations for ``FROM``, each with the version of its rows; without parts it selects no rows.
    """
    if not parts:
        empty = ", ".join(f"NULL::{column.sql_type} AS {column.name}" for column in columns()[kind])
        return f"SELECT {empty} WHERE false"
    return " UNION ALL ".join(f"SELECT {_selected(kind, schema)} FROM {rows}" for rows, schema in parts)  # noqa: S608


def added_since(schema: int) -> Iterator[str]:
    for table, own in columns().items():
        for column in own:
            if column.schema > schema:
                yield f"ALTER TABLE {table} ADD COLUMN {column.name} {column.sql_type}"
                yield f"UPDATE {table} SET {column.name} = {column.before}"  # noqa: S608 - own names


def _selected(kind: str, schema: int) -> str:
    return ", ".join(
        column.name if column.schema <= schema else f"{column.before} AS {column.name}" for column in columns()[kind]
    )
