"""Opens DuckDB, and says in one line what went wrong."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from nightjar.errors import WarehouseError
from nightjar.scratch import scratch_folder

MEMORY_LIMIT = "2GB"
"""How much an operation or a query may take, beyond which it spills to disk or is refused."""

SPILL_LIMIT = "8GB"
"""How much of a disk an operation or a query may take for a while."""

STORAGE_VERSION = "v1.4.0"
"""New database files can be read by DuckDB 1.4 and newer."""

_TRACEBACK = re.compile(r"\ATraceback .*\n(?: .*\n)*(?:\w+: )?")


def connect_scratch(spill: Path, memory_limit: str = "1GB") -> duckdb.DuckDBPyConnection:
    """Returns a connection to a database in memory, whose times are in UTC.

    Args:
        spill: where it puts what does not fit into memory.
        memory_limit: how much memory it may take.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": memory_limit,
            "threads": min(4, os.cpu_count() or 1),
            "temp_directory": str(spill),
            "max_temp_directory_size": SPILL_LIMIT,
        },
    )
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    return connection


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commits what its body does, or undoes it when the body raises."""
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
    """Turns DuckDB's errors into a WarehouseError that says what failed, and why, in one line."""
    try:
        yield
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise WarehouseError(f"{what}: {reason(error)}") from error
    except RuntimeError as error:
        if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
            raise KeyboardInterrupt from error
        raise


def statements_in(connection: duckdb.DuckDBPyConnection, text: str) -> list[duckdb.Statement]:
    """Returns the statements of a text.

    Raises:
        WarehouseError: it is no text that can be written in UTF-8: it was read from bytes that are none.
    """
    try:
        return connection.extract_statements(text)
    except TypeError as error:
        raise WarehouseError("The query failed: it is no text that can be written in UTF-8.") from error


@contextmanager
def database_name(path: Path) -> Iterator[Path]:
    """Gives a name under which DuckDB can write the new database file of a path, and puts it in its place afterwards.

    In a name with ``?`` DuckDB looks for parameters when it writes; it opens such a file all the same.
    """
    if "?" not in str(path.absolute()):
        yield path
        return
    with scratch_folder() as folder:
        beside = folder / "written.duckdb"
        yield beside
        shutil.copyfile(beside, path)


def reason(error: duckdb.Error | UnicodeDecodeError) -> str:
    """Returns what DuckDB says, in one line without its picture of the statement."""
    if isinstance(error, UnicodeDecodeError):
        return "it holds text that is none in UTF-8"
    said = _TRACEBACK.sub("", str(error))  # of a filesystem in Python (``remote_files.py``)
    return " ".join(said.partition("\n\n")[0].split())


def newer(found: int, known: int, warehouse: str = "") -> WarehouseError:
    """Returns what to raise where a newer Nightjar made what is read.

    Args:
        found: its version.
        known: the last one that is known here.
        warehouse: its location, where that is not plain.
    """
    return WarehouseError(
        f"The warehouse {warehouse}{' ' * bool(warehouse)}is at version {found}, this Nightjar knows version {known}. "
        "Upgrade Nightjar: pip install --upgrade nightjar-evals"
    )


def quoted(text: object) -> str:
    """Returns a text as a literal of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def parquet(*files: object) -> str:
    """Returns the call of SQL that reads Parquet files; folders called ``name=value`` on their way are no columns."""
    return f"read_parquet([{', '.join(map(quoted, files))}], hive_partitioning = false)"
