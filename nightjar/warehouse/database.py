"""Opens DuckDB: one operation at a time, and never for longer than the operation.

DuckDB lets one process write and shuts every reader out meanwhile. An exclusive lock on a file
beside the database turns that into waiting: whoever holds the lock has the database alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

from nightjar.errors import WarehouseError

LOCK_TIMEOUT_SECONDS = 120.0
"""How long an operation waits for the others; more than the longest query may take."""

STORAGE_VERSION = "v1.4.0"
"""New databases can be read by DuckDB 1.4 and newer."""

_POLL_SECONDS = 0.01

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "2GB",
    "threads": min(4, os.cpu_count() or 1),
}

_LOCK_DOWN = """
SET TimeZone = 'UTC';
SET enable_external_access = false;
SET lock_configuration = true;
"""

_JSON_LOCATION = re.compile(
    r'(?:JSON transform error|Malformed JSON) in file "(.*?)",.*? in (?:line|record/value) (\d+): '
)


def connect_scratch(database: Path) -> duckdb.DuckDBPyConnection:
    """Returns an in-memory connection for staging; it spills to disk beside the database."""
    settings = {**_SETTINGS, "temp_directory": f"{database}.tmp"}
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def connect_read_only(database: Path) -> duckdb.DuckDBPyConnection:
    """Returns a connection that can read this database and nothing else.

    Raises:
        WarehouseError: the file cannot be opened.
    """
    with explained(f"Cannot open {database}"):
        connection = duckdb.connect(str(database), read_only=True, config=_SETTINGS)
        connection.execute(_LOCK_DOWN)
    return connection


@contextmanager
def attached(connection: duckdb.DuckDBPyConnection, database: Path) -> Iterator[None]:
    """Makes a database, created when missing, the one that the connection reads and writes.

    Raises:
        WarehouseError: the file cannot be opened or created.
    """
    options = "" if database.exists() else f"(STORAGE_VERSION '{STORAGE_VERSION}')"
    with explained(f"Cannot open {database}"):
        connection.execute(f"ATTACH {_quoted(database)} AS nightjar {options}")
    try:
        connection.execute("USE nightjar")
        yield
    finally:
        connection.execute("USE memory; DETACH nightjar")


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commits what its body does, or undoes it when the body raises."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


@contextmanager
def exclusive(database: Path, purpose: str) -> Iterator[None]:
    """Holds the database against every other operation, of this process too.

    Args:
        database: the database file; the lock file is beside it.
        purpose: what others are told when they wait too long.

    Raises:
        WarehouseError: others did not finish in time, or the lock file cannot be written.
    """
    lock_file = database.with_suffix(".lock")
    lock = FileLock(lock_file, timeout=LOCK_TIMEOUT_SECONDS)
    try:
        lock.acquire(poll_interval=_POLL_SECONDS)
        lock_file.write_text(f"process {os.getpid()} ({purpose})")
    except Timeout as error:
        holder = lock_file.read_text() or "another process"
        raise WarehouseError(
            f"Gave up on {database} after {LOCK_TIMEOUT_SECONDS:g} s: it is held by {holder}. "
            "Try again when that has ended."
        ) from error
    except OSError as error:
        lock.release()
        raise WarehouseError(f"Cannot lock {database}: {error}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns DuckDB's errors into a WarehouseError that says what failed, and why, in one line."""
    try:
        yield
    except duckdb.Error as error:
        raise WarehouseError(f"{what}: {_reason(error)}") from error
    except RuntimeError as error:
        if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
            raise KeyboardInterrupt from error
        raise


def _reason(error: duckdb.Error) -> str:
    """DuckDB's message without its class, its picture of the statement and its advice."""
    text = re.split(r"\n\nLINE |See also https", str(error), maxsplit=1)[0]
    lines = [line.strip() for line in text.splitlines() if not line.startswith("Try setting")]
    message = re.sub(r"^[A-Z]\w*(?: \w+)* Error: ", "", " ".join(filter(None, lines)))
    return _JSON_LOCATION.sub(lambda at: f"{Path(at[1]).name}, near line {at[2]}: ", message)


def _quoted(value: Path) -> str:
    return "'" + str(value).replace("'", "''") + "'"
