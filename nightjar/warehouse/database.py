"""Connections to DuckDB, and its errors in one line."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import duckdb

from nightjar.core.files import scratch_folder
from nightjar.errors import WarehouseError

MEMORY_LIMIT = "2GB"
"""The memory limit of a query. A query that needs more spills to disk or is refused."""

SPILL_LIMIT = "8GB"

STORAGE_VERSION = "v1.4.0"
"""New database files can be read by DuckDB 1.4 and newer."""

_TRACEBACK = re.compile(r"\ATraceback .*\n(?: .*\n)*(?:\w+: )?")


def connect_scratch(
    spill: Path, memory_limit: str = "1GB", threads: int = 4, *, file: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Returns a connection to a database in memory or in a file, which spills to a folder. Times are in UTC."""
    connection = duckdb.connect(
        str(file or ":memory:"),
        config={
            "memory_limit": memory_limit,
            "threads": min(threads, os.cpu_count() or 1),
            "temp_directory": str(spill),
            "max_temp_directory_size": SPILL_LIMIT,
        },
    )
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    [(is_shown,)] = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    if is_shown:
        connection.execute("SET enable_progress_bar = false")
    return connection


@contextmanager
def scratch_connection(memory_limit: str = "1GB") -> Iterator[duckdb.DuckDBPyConnection]:
    with scratch_folder() as spill, closing(connect_scratch(spill, memory_limit)) as connection:
        yield connection


def connect_freely(prepare: Callable[[duckdb.DuckDBPyConnection], object]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET TimeZone = 'UTC'")
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        with suppress(duckdb.Error):  # a failed commit has ended the transaction
            connection.rollback()
        raise


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns DuckDB's errors into a WarehouseError of one line that starts with ``what``."""
    try:
        yield
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise WarehouseError(f"{what}: {reason(error)}") from error
    except RuntimeError as error:
        if str(error) == "Query interrupted":  # DuckDB's error for Ctrl-C
            raise KeyboardInterrupt from error
        raise


def statements_in(connection: duckdb.DuckDBPyConnection, text: str) -> list[duckdb.Statement]:
    """Raises WarehouseError if the text cannot be encoded in UTF-8."""
    try:
        return connection.extract_statements(text)
    except TypeError as error:
        raise WarehouseError("The query failed: it is not valid UTF-8.") from error


@contextmanager
def database_name(path: Path) -> Iterator[Path]:
    """Yields a path for DuckDB, which refuses a ``?`` in it: the file is then copied to ``path``."""
    if "?" not in str(path.absolute()):
        yield path
        return
    with scratch_folder() as folder:
        beside = folder / "written.duckdb"
        yield beside
        shutil.copyfile(beside, path)


def reason(error: duckdb.Error | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it contains text that is not UTF-8"
    said = _TRACEBACK.sub("", str(error))  # of a Python filesystem (``remote_files.py``)
    return " ".join(said.partition("\n\n")[0].split())


def newer(found: int, known: int, warehouse: str = "") -> WarehouseError:
    return WarehouseError(
        f"The warehouse {warehouse}{' ' * bool(warehouse)}is at version {found}, this Nightjar knows version {known}. "
        "Upgrade Nightjar: pip install --upgrade nightjar-evals"
    )


def quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def parquet(*files: object) -> str:
    """Returns the SQL that reads Parquet files; folders called ``name=value`` in their paths are not columns."""
    return f"read_parquet([{', '.join(map(quoted, files))}], hive_partitioning = false)"
