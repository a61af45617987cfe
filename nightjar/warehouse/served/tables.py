"""``ServedWarehouse``: real tables in a database that DuckDB attaches: MotherDuck, a DuckLake, or one DuckDB file.

The schema ``segments`` there has the tables of a segment, ``prices`` and what ``LINE_FILES`` names; the schema
``main`` the views over them, for people's own tools. A publish is one transaction: it removes the run's rows and
inserts those of its directory. Every publish counts up a row of its own first, so that of two at the same time one
fails and is repeated: a run cannot be there twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from nightjar.errors import WarehouseError
from nightjar.scratch import scratch_folder
from nightjar.warehouse.database import connect_scratch, explained, newer, quoted, transaction
from nightjar.warehouse.location import missing, shown
from nightjar.warehouse.reading.querying import connect_locked
from nightjar.warehouse.reading.relations import PRICES_COLUMNS, tables_script, views_script
from nightjar.warehouse.served.address import Address, parse_address
from nightjar.warehouse.storage.line_files import LineFile, Row
from nightjar.warehouse.storage.segments import KINDS, SCHEMA, is_held
from nightjar.warehouse.storage.store import LINE_FILES
from nightjar.warehouse.storage.writability import ask_patiently, check_place
from nightjar.warehouse.writing.publish_report import PublishReport
from nightjar.warehouse.writing.publishing import define_new, publish_with
from nightjar.warehouse.writing.run_files import RunFiles

PATIENCE_SECONDS = 60.0
"""How long a publish or a query tries again while others write."""

_BUSY = re.compile(r"conflict|could not set lock|database is locked|serializ", re.IGNORECASE)

Answer = TypeVar("Answer")


class ServedWarehouse:
    """A warehouse of tables; may be used by several threads.

    Its methods raise a WarehouseError where there is no warehouse, it cannot be reached, read or written, or a newer
    Nightjar made it.
    """

    def __init__(self, location: str) -> None:
        self._address = parse_address(location)

    def __str__(self) -> str:
        """Its location for messages."""
        return str(self._address)

    def check_writable(self) -> None:
        """Finds out whether the tables can be written; a database that is missing is not made where that is a file."""
        file = self._address.file
        if file is not None and not file.exists():
            check_place(file.parent, str(self))
            return
        with _discreet():
            ask_patiently(self._open_for_writing, str(self))

    def publish(self, run_dir: Path) -> PublishReport:
        """Makes the tables hold this run as its directory has it now, unless they hold a newer version."""
        with _discreet():
            return publish_with(run_dir, lambda _: None, self._write)

    def tidy(self) -> None:
        """Does nothing: the service looks after its storage."""

    def rows(self, file: LineFile[Row]) -> list[Row]:
        """Returns the records of a kind that is kept beside the runs."""
        found = self.ask(lambda connection: connection.execute(f"FROM segments.{file.table}").fetchall())
        return file.load("\n".join(line for (line,) in found).encode())

    def write_rows(self, file: LineFile[Row], rows: Sequence[Row]) -> None:
        """Adds records of a kind, or replaces them."""

        def replace(connection: duckdb.DuckDBPyConnection) -> None:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {file.table} ({file.columns})")
            same = " AND ".join(f"{file.column} ->> '{name}' = ?" for name in file.key)
            for row in rows:
                connection.execute(f"DELETE FROM {file.table} WHERE {same}", file.key_of(row))  # noqa: S608 - own text
            lines = file.lines(rows)
            connection.execute(f"INSERT INTO {file.table} SELECT unnest(?::JSON[])", [lines])

        with _discreet(), scratch_folder() as spill, closing(connect_scratch(spill)) as connection:
            self._change(connection, replace)

    def ask(self, question: Callable[[duckdb.DuckDBPyConnection], Answer]) -> Answer:
        """Calls a function with a connection that can read the warehouse and, where possible, nothing else."""
        with _discreet(), scratch_folder() as spill:
            with explained(f"Cannot read the warehouse {self}"):
                connection = _patiently(lambda: self._open(spill))
            with closing(connection):
                return question(connection)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Returns a connection of the caller's own that sees the tables, read only, and the views over them."""
        with _discreet(), explained(f"Cannot read the warehouse {self}"):
            return _patiently(self._open_freely)

    def _write(self, connection: duckdb.DuckDBPyConnection, files: RunFiles) -> bool:
        define_new(connection, files)

        def replace(connection: duckdb.DuckDBPyConnection) -> bool:
            held = connection.execute("SELECT max(version) FROM runs WHERE run_id = ?", [files.run_id]).fetchone()
            if held and is_held(held[0], files.version):
                return False
            _replace_run(connection, files.run_id)
            return True

        return self._change(connection, replace)

    def _change(
        self, connection: duckdb.DuckDBPyConnection, change: Callable[[duckdb.DuckDBPyConnection], Answer]
    ) -> Answer:
        """Calls a function in a transaction, in the schema ``segments``; again where others interfere."""

        def once() -> Answer:
            self._make_folder()
            self._address.attach(connection, read_only=False)
            try:
                _make_tables(connection, self._address)
                connection.execute(f'USE "{self._address.catalog}".segments')
                with transaction(connection):
                    connection.execute("UPDATE publishes SET number = number + 1")
                    return change(connection)
            finally:
                connection.execute(f'USE memory; DETACH "{self._address.catalog}"')

        return _patiently(once)

    def _open_for_writing(self) -> None:
        with (
            scratch_folder() as spill,
            explained(f"Cannot write the warehouse {self}"),
            closing(connect_scratch(spill)) as connection,
        ):
            try:
                self._address.attach(connection, read_only=False)
                _version(connection, self._address)
            except duckdb.Error as error:
                if not _BUSY.search(str(error)):  # else somebody writes it, so it can be written
                    raise

    def _make_folder(self) -> None:
        if self._address.file:
            try:
                self._address.file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WarehouseError(f"Cannot create the warehouse {self}: {error.strerror}") from error

    def _open(self, spill: Path) -> duckdb.DuckDBPyConnection:
        return connect_locked(_Attached(self._address, spill), spill)

    def _open_freely(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        try:
            connection.execute("SET TimeZone = 'UTC'")
            _Attached(self._address, Path()).prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection


class _Attached:
    """The database and the views over it, for a connection."""

    def __init__(self, address: Address, spill: Path) -> None:
        self._address, self._readable = address, str(spill)

    def readable(self) -> str:
        """The files of a DuckLake; nothing but DuckDB's own for other databases."""
        return f"{self._readable.rstrip('/')}/"

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        if self._address.file and not self._address.file.exists():
            raise missing(self._address)
        try:
            self._address.attach(connection, read_only=True)
        except duckdb.Error as error:
            if "does not exist" in str(error):
                raise missing(self._address) from error
            raise
        if _version(connection, self._address) is None:
            raise missing(self._address)
        if "ducklake" in self._address.extensions:
            [(self._readable,)] = connection.execute(
                f"SELECT data_path FROM ducklake_settings({quoted(self._address.catalog)})"  # noqa: S608 - quoted
            ).fetchall()
        connection.execute("CREATE SCHEMA segments")
        for name in (*KINDS, "prices"):
            connection.execute(f'CREATE VIEW segments.{name} AS FROM "{self._address.catalog}".segments.{name}')
        for file in LINE_FILES:
            _define_lines(connection, self._address, file)
        connection.execute(views_script())


def _define_lines(connection: duckdb.DuckDBPyConnection, address: Address, file: LineFile[Any]) -> None:
    """Makes a table of records known; one without rows where an older Nightjar made the database."""
    there = "FROM duckdb_tables() WHERE database_name = ? AND schema_name = 'segments' AND table_name = ?"
    if connection.execute(there, [address.catalog, file.table]).fetchone():
        connection.execute(f'CREATE VIEW segments.{file.table} AS FROM "{address.catalog}".segments.{file.table}')
    else:
        connection.execute(f"CREATE TABLE segments.{file.table} ({file.columns})")


def _replace_run(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    for kind in ("runs", "rollouts", "attempts"):
        connection.execute(f"DELETE FROM {kind} WHERE run_id = ?", [run_id])  # noqa: S608 - own names
        connection.execute(f"INSERT INTO {kind} BY NAME FROM temp.new_{kind}")
    connection.execute(
        "INSERT INTO examples BY NAME FROM temp.new_examples WHERE content_id NOT IN (SELECT content_id FROM examples)"
    )


def _make_tables(connection: duckdb.DuckDBPyConnection, address: Address) -> None:
    if _version(connection, address) is not None:
        return
    with transaction(connection):
        name = f'"{address.catalog}".segments'
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}; USE {name}")
        connection.execute(tables_script())
        connection.execute(f"CREATE TABLE prices ({PRICES_COLUMNS})")
        for file in LINE_FILES:
            connection.execute(f"CREATE TABLE {file.table} ({file.columns})")
        connection.execute("CREATE TABLE publishes (number BIGINT); INSERT INTO publishes VALUES (0)")
        connection.execute(f"CREATE TABLE version (number INTEGER); INSERT INTO version VALUES ({SCHEMA})")  # noqa: S608
        _make_views(connection, address)


def _make_views(connection: duckdb.DuckDBPyConnection, address: Address) -> None:
    """Makes the views in the database, for people's own tools; a DuckLake refuses notes on columns of views."""
    connection.execute(f'USE "{address.catalog}".main')
    for statement in connection.extract_statements(views_script()):
        try:
            connection.execute(statement)
        except duckdb.Error:
            if not statement.query.lstrip().startswith("COMMENT"):
                raise


def _version(connection: duckdb.DuckDBPyConnection, address: Address) -> int | None:
    """Returns the version of the tables; None where there are none.

    Raises:
        WarehouseError: a newer Nightjar made them.
    """
    there = "FROM duckdb_tables() WHERE database_name = ? AND schema_name = 'segments' AND table_name = 'version'"
    if not connection.execute(there, [address.catalog]).fetchone():
        return None
    [(found,)] = connection.execute(f'SELECT max(number) FROM "{address.catalog}".segments.version').fetchall()  # noqa: S608
    if found > SCHEMA:
        raise newer(found, SCHEMA, str(address))
    return int(found)


def _patiently(action: Callable[[], Answer]) -> Answer:
    """Does something again while other processes or threads are in the way."""
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, duckdb.Error) and bool(_BUSY.search(str(error)))),
        wait=wait_random_exponential(multiplier=0.02, max=1),
        stop=stop_after_delay(PATIENCE_SECONDS),
        reraise=True,
    )
    return retrying(action)


@contextmanager
def _discreet() -> Iterator[None]:
    """Keeps passwords and tokens out of messages."""
    try:
        yield
    except WarehouseError as error:
        if (text := shown(str(error))) != str(error):
            raise WarehouseError(text) from None
        raise
