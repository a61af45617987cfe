"""``Warehouse``: all published runs; the face of this package."""

from __future__ import annotations

import math
import uuid
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightjar.errors import MissingWarehouseError, WarehouseError
from nightjar.warehouse.location import Kind, folder_of, is_in_memory, kind_of, resolve_warehouse, shown
from nightjar.warehouse.reading import process
from nightjar.warehouse.reading.result import AskedQuery, Parameters, QueryResult
from nightjar.warehouse.reading.statements import WrittenStatement, split_statements
from nightjar.warehouse.reading.time_limit import QUERY_TIMEOUT_SECONDS, TimeLimit
from nightjar.warehouse.writing.publish_report import PublishReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import pyarrow as pa

    from nightjar.warehouse.backend import Backend
    from nightjar.warehouse.storage.line_files import LineFile, Row
    from nightjar.warehouse.storage.nights import Night
    from nightjar.warehouse.storage.store import Store

LONGEST_STATEMENT = 1_000_000
"""How many characters a statement may have: each takes up to 10 KB while it is parsed."""


class Warehouse:
    """All published runs, as segments in a folder or an object store, or in the tables of a service.

    Any number of processes may publish and query at the same time: segments never change, and nothing stays open
    between two calls.

    Args:
        location: a folder; ``s3://bucket/prefix`` or another URL that fsspec knows; or ``md:name``,
            ``ducklake:catalog``, ``duckdb:path``. Nothing is made or reached before the first call.

    Attributes:
        location: as it was given, for messages: without passwords.
        folder: where it is on this machine, made by the first publish; None for one that is elsewhere.

    Raises:
        WarehouseError: the location cannot be understood, or a package for it is missing.
    """

    def __init__(self, location: str | Path) -> None:
        self.location = shown(str(location))
        self.folder = folder_of(str(location)) if kind_of(str(location)) is Kind.FOLDER else None
        self._location, self._id = str(location), uuid.uuid4().hex
        self._asked_at = str(self.folder.absolute()) if self.folder else self._location
        if self.folder is None:
            self._backend  # noqa: B018 - raises where a package is missing

    def check_writable(self) -> None:
        """Finds out, before a run is paid for, whether it can be published; leaves nothing behind.

        A folder answers at once; another place is given half a minute.

        Raises:
            WarehouseError: it cannot be made, reached or written, or a newer Nightjar wrote it.
        """
        self._backend.check_writable()

    def publish(self, run_dir: str | Path, *, tidies: bool = True) -> PublishReport:
        """Makes the warehouse hold this run as its directory has it now.

        Publishing again replaces the run, unless the warehouse holds it with newer attempts. Either all of it is
        there afterwards, or the warehouse is as it was.

        Args:
            run_dir: a run directory.
            tidies: whether to ``tidy`` afterwards; who publishes many does that now and then.

        Raises:
            WarehouseError: the run directory is damaged, or the warehouse cannot be written.
        """
        report = self._backend.publish(Path(run_dir))
        if report.is_new and tidies:
            self.tidy()
        return report

    def tidy(self) -> None:
        """Merges small segments where there are many, and replaces ``nightjar.duckdb``; warns where that fails."""
        self._backend.tidy()

    def nights(self) -> list[Night]:
        """Returns the nights of suites, by suite and date; none where there is no warehouse.

        Raises:
            WarehouseError: the warehouse cannot be read, or the list of nights is damaged.
        """
        from nightjar.warehouse.storage.nights import NIGHTS

        return self.rows(NIGHTS)

    def write_night(self, night: Night) -> None:
        """Writes down what a night came to, in the place of what was written of it before.

        Raises:
            WarehouseError: the warehouse cannot be written, or the list of nights is damaged.
        """
        from nightjar.warehouse.storage.nights import NIGHTS

        self.write_rows(NIGHTS, [night])

    def rows(self, file: LineFile[Row]) -> list[Row]:
        """Returns the records of a kind that is kept beside the segments; none where there is no warehouse.

        Raises:
            WarehouseError: the warehouse cannot be read, or the list of these records is damaged.
        """
        try:
            return self._backend.rows(file)
        except MissingWarehouseError:
            return []

    def write_rows(self, file: LineFile[Row], rows: Sequence[Row]) -> None:
        """Adds records of a kind, or replaces those with the same key; who else writes meanwhile loses nothing.

        Raises:
            WarehouseError: the warehouse cannot be written, or the list of these records is damaged.
        """
        self._backend.write_rows(file, rows)

    def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
        largest_bytes: int | None = None,
    ) -> QueryResult:
        """Runs one statement that only reads; it sees the warehouse's tables and nothing else.

        Args:
            sql: a SELECT, WITH, FROM, PIVOT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN.
            parameters: values for ``?`` (a sequence) or ``$name`` (a mapping).
            timeout_seconds: how long it may run.
            largest_bytes: how much memory its rows may take; None for 2 GB.

        Raises:
            WarehouseError: there is no warehouse, the statement is refused, takes too long or too much memory.
        """
        [result] = self.query_all([(sql, parameters)], timeout_seconds=timeout_seconds, largest_bytes=largest_bytes)
        return result

    def query_all(
        self,
        asked: Sequence[AskedQuery],
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
        largest_bytes: int | None = None,
    ) -> list[QueryResult]:
        """Runs statements that only read, all on the warehouse as it is at one moment; in less time than one by one.

        Args:
            asked: the statements, each with the values of its parameters.
            timeout_seconds: how long all of them may run.
            largest_bytes: how much memory the rows of each may take; None for 2 GB.

        Raises:
            WarehouseError: as ``query``, for the first that fails.
        """
        results: list[QueryResult] = self._ask("rows", asked, TimeLimit(timeout_seconds), largest_bytes)
        return results

    def query_arrow(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
    ) -> pa.Table:
        """Runs one statement that only reads, and returns an Arrow table; otherwise like ``query``."""
        return self._ask("table", [(sql, parameters)], TimeLimit(timeout_seconds))

    def statements(self, text: str, *, timeout_seconds: float = QUERY_TIMEOUT_SECONDS) -> list[WrittenStatement]:
        """Returns the statements of a text, which semicolons separate; none for blanks and comments.

        Raises:
            WarehouseError: the text is no SQL, or takes too long or too much memory to be read.
        """
        found: list[WrittenStatement] = process.ask("statements", text, limit=TimeLimit(timeout_seconds))
        return found

    def catalog(self) -> QueryResult:
        """Returns every table and view with its columns: table, about, column, type, note."""
        catalog = resources.files(__package__) / "catalog.sql"
        return self.query(catalog.read_text("utf-8"))

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Returns a DuckDB connection of the caller's own, for notebooks.

        It sees what is published now, as views; what it makes beside them is in memory. Results are had as
        ``.fetchall()``, ``.df()`` (pandas), ``.pl()`` (polars) or ``.to_arrow_table()``. Ask for another connection
        to see what was published since.

        Raises:
            WarehouseError: there is no warehouse.
        """
        return self._backend.connect()

    def store(self) -> Store:
        """Returns what keeps its segments.

        Raises:
            WarehouseError: it has tables instead.
        """
        from nightjar.warehouse.backend import open_store

        return open_store(self._location)

    @cached_property
    def _backend(self) -> Backend:
        from nightjar.warehouse.backend import open_backend

        return open_backend(self._location)

    def _ask(self, kind: str, asked: Sequence[AskedQuery], limit: TimeLimit, *more: object) -> Any:
        longest = max((len(sql) for sql, _ in asked), default=0)
        if longest > LONGEST_STATEMENT:
            raise WarehouseError(
                f"The statement has {longest:,} characters, expected at most {LONGEST_STATEMENT:,}. Hand long texts "
                "to it as values of parameters."
            )
        if is_in_memory(self._location):
            return self._backend.ask(lambda connection: _asked_here(connection, kind, asked, limit))
        return process.ask(kind, self._id, self._asked_at, asked, *more, limit=limit)


def _asked_here(connection: duckdb.DuckDBPyConnection, kind: str, asked: Sequence[AskedQuery], limit: TimeLimit) -> Any:
    from nightjar.warehouse.reading.querying import run_arrow_query, run_query
    from nightjar.warehouse.reading.running import run_stoppable

    if kind == "table":
        return run_stoppable(lambda: run_arrow_query(connection, *asked[0]), connection, limit)
    return run_stoppable(lambda: [run_query(connection, *one) for one in asked], connection, limit)


class Unlocked(Warehouse):
    """A warehouse to its owner, who may do what DuckDB can do: write files, attach databases, make tables and views.

    These are in memory and last as long as this object. The runs are those that were published when it was made, and
    stay as they are: segments are immutable.

    Raises:
        WarehouseError: there is no warehouse.
    """

    def __init__(self, location: str | Path) -> None:
        super().__init__(location)
        self._connection = self.connect()

    def query_all(
        self,
        asked: Sequence[AskedQuery],
        *,
        timeout_seconds: float = 0,  # noqa: ARG002 - the owner waits as long as it takes
        largest_bytes: int | None = None,  # noqa: ARG002 - as much as the machine has
    ) -> list[QueryResult]:
        """Runs statements, as long as they take; Ctrl-C stops them.

        Raises:
            WarehouseError: one is more than one statement, DuckDB refuses it, or it answers too much.
        """
        from nightjar.warehouse.reading.querying import run_statement
        from nightjar.warehouse.reading.running import run_stoppable

        def run() -> list[QueryResult]:
            return [run_statement(self._connection, *one) for one in asked]

        return run_stoppable(run, self._connection, TimeLimit(math.inf))

    def statements(
        self,
        text: str,
        *,
        timeout_seconds: float = 0,  # noqa: ARG002 - as above
    ) -> list[WrittenStatement]:
        """Returns the statements of a text, however large that is."""
        return split_statements(text)


def connect(location: str | Path | None = None) -> duckdb.DuckDBPyConnection:
    """Returns a DuckDB connection that sees a warehouse, see ``Warehouse.connect``.

    Args:
        location: as for ``Warehouse``; None for ``NIGHTJAR_WAREHOUSE``, or else ``outputs/warehouse``.

    Raises:
        WarehouseError: there is no warehouse.
    """
    return Warehouse(location if location is not None else resolve_warehouse()).connect()
