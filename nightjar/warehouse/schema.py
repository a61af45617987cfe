"""The tables of the warehouse, as numbered SQL files that are applied once and in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import duckdb

from nightjar.warehouse.database import newer, transaction

_LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL
)
"""


@dataclass(frozen=True)
class Migration:
    """One numbered step from the schema before it to the schema after it."""

    number: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Returns every step that this Nightjar knows, in order: ``0001_runs.sql`` is number 1."""
    folder = resources.files(__package__) / "migrations"
    files = (file for file in folder.iterdir() if file.name.endswith(".sql"))
    return tuple(
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    )


def version(connection: duckdb.DuckDBPyConnection) -> int:
    """Returns the number of the last step that was applied to the database; 0 for an empty one.

    Raises:
        WarehouseError: a newer Nightjar made the database.
    """
    known = migrations()[-1].number
    found = _last_applied(connection)
    if found > known:
        raise newer(found, known)
    return found


def migrate(connection: duckdb.DuckDBPyConnection) -> None:
    """Applies the steps that are missing, each in a transaction; raises like :func:`version`."""
    found = version(connection)
    for migration in migrations():
        if migration.number > found:
            _apply(connection, migration)


def note(connection: duckdb.DuckDBPyConnection) -> None:
    """Notes every known step as applied, in a database that was made as the last of them leaves it."""
    connection.execute(_LEDGER)
    for migration in migrations():
        _note(connection, migration)


def _note(connection: duckdb.DuckDBPyConnection, migration: Migration) -> None:
    connection.execute("INSERT INTO migrations VALUES (?, ?, now())", [migration.number, migration.name])


def _apply(connection: duckdb.DuckDBPyConnection, migration: Migration) -> None:
    with transaction(connection):
        connection.execute(_LEDGER)
        connection.execute(migration.sql)
        _note(connection, migration)


def _last_applied(connection: duckdb.DuckDBPyConnection) -> int:
    ledger = "FROM duckdb_tables() WHERE table_name = 'migrations'"
    if not connection.execute(ledger).fetchone():
        return 0
    row = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
    return int(row[0]) if row else 0
