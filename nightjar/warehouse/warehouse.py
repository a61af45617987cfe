"""``Warehouse``: all published runs; the public class of this package."""

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
from nightjar.warehouse.reading.process import QUERY_TIMEOUT_SECONDS, TimeLimit
from nightjar.warehouse.reading.result import AskedQuery, Columns, Parameters, QueryResult
from nightjar.warehouse.reading.statements import WrittenStatement, split_statements
from nightjar.warehouse.writing.publish_report import PublishReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import pyarrow as pa

    from nightjar.warehouse.backend import Backend
    from nightjar.warehouse.storage.records import LineFile, Night, Row
    from nightjar.warehouse.storage.store import Store

LONGEST_STATEMENT = 1_000_000
"""The maximum length of a statement in characters. Parsing takes up to 10 KB of memory for each character."""

_PRICE = "SELECT input, output FROM prices WHERE model = $model AND since <= now() ORDER BY since DESC LIMIT 1"


class Warehouse:
    """All published runs, as segments in a folder or an object store, or in the tables of a service.

    Any number of processes may publish and query at the same time. The first call creates or connects. The constructor
    raises WarehouseError if the location is invalid or a package for it is missing. Methods raise WarehouseError if the
    warehouse cannot be read or written.

    Args:
        location: a folder; ``s3://bucket/prefix`` or another URL that fsspec knows; or ``md:name``,
            ``ducklake:catalog``, ``duckdb:path``.

    Attributes:
        location: the location for messages, without passwords.
        folder: the folder on this machine, which the first publish creates. For a remote warehouse, None.
    """

    def __init__(self, location: str | Path) -> None:
        self.location = shown(str(location))
        self.folder = folder_of(str(location)) if kind_of(str(location)) is Kind.FOLDER else None
        self._location, self._id = str(location), uuid.uuid4().hex
        self._asked_at = str(self.folder.absolute()) if self.folder else self._location
        if self.folder is None:
            self._backend  # noqa: B018 - raises if a package is missing

    @classmethod
    def of(cls, place: str | Path | Warehouse | None) -> Warehouse:
        """Returns the warehouse at a location. None means the warehouse that runs are published to."""
        return place if isinstance(place, Warehouse) else cls(place or resolve_warehouse())

    @property
    def address(self) -> str:
        """The location with the whole path of a folder, without passwords. Equal warehouses have the same address."""
        return str(self.folder.resolve()) if self.folder else self.location

    def check_writable(self) -> None:
        """Checks, before a run costs money, that the warehouse can be written.

        Takes half a minute at most; leaves nothing behind.
        """
        self._backend.check_writable()

    def publish(self, run_dir: str | Path, *, tidies: bool = True) -> PublishReport:
        """Publishes a run directory, atomically.

        Replaces the run in the warehouse, unless the warehouse has newer attempts of the run. To publish many runs,
        pass ``tidies=False`` and call ``tidy`` after some of them.
        """
        report = self._backend.publish(Path(run_dir))
        if report.is_new and tidies:
            self.tidy()
        return report

    def tidy(self) -> None:
        """Merges small segments if there are many, and replaces ``nightjar.duckdb``. Only warns if this fails."""
        self._backend.tidy()

    def nights(self) -> list[Night]:
        """Returns the nights by suite and date. Returns an empty list if there is no warehouse."""
        from nightjar.warehouse.storage.records import NIGHTS

        return self.rows(NIGHTS)

    def write_night(self, night: Night) -> None:
        from nightjar.warehouse.storage.records import NIGHTS

        self.write_rows(NIGHTS, [night])

    def rows(self, file: LineFile[Row]) -> list[Row]:
        """Returns the records of a kind. Returns an empty list if there is no warehouse."""
        try:
            return self._backend.rows(file)
        except MissingWarehouseError:
            return []

    def write_rows(self, file: LineFile[Row], rows: Sequence[Row]) -> None:
        """Adds records of a kind. Replaces records with the same key. Safe for several processes."""
        self._backend.write_rows(file, rows)

    def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
        largest_bytes: int | None = None,
    ) -> QueryResult:
        """Runs one reading statement, which can access the warehouse's tables and nothing else.

        ``parameters`` are values for ``?`` (a sequence) or ``$name`` (a mapping). ``largest_bytes`` is the memory that
        the rows may take; None means 2 GB. Raises WarehouseError if there is no warehouse, if the statement is refused,
        or if the statement takes too long or too much memory.
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
        """Runs several statements on the same state of the warehouse, which is faster than several calls of ``query``.

        The time limit is for all statements together, and the memory limit is for each. The first error is raised.
        """
        results: list[QueryResult] = self._ask("rows", asked, TimeLimit(timeout_seconds), largest_bytes)
        return results

    def query_columns(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
    ) -> Columns:
        """Does the same as ``query``, and returns NumPy arrays."""
        found: Columns = self._ask("columns", [(sql, parameters)], TimeLimit(timeout_seconds))
        return found

    def query_arrow(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
    ) -> pa.Table:
        """Does the same as ``query``, and returns an Arrow table. Raises ``ConfigError`` without pyarrow."""
        return self._ask("table", [(sql, parameters)], TimeLimit(timeout_seconds))

    def statements(self, text: str, *, timeout_seconds: float = QUERY_TIMEOUT_SECONDS) -> list[WrittenStatement]:
        found: list[WrittenStatement] = process.ask("statements", text, limit=TimeLimit(timeout_seconds))
        return found

    def catalog(self) -> QueryResult:
        """Returns every table and view with its columns: table, about, column, type, note."""
        catalog = resources.files(__package__) / "catalog.sql"
        return self.query(catalog.read_text("utf-8"))

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Returns a new DuckDB connection for notebooks, which the caller owns.

        The connection has views of the currently published runs. Whatever you create stays in memory. Read results with
        ``.fetchall()``, ``.df()`` (pandas), ``.pl()`` (polars) or ``.to_arrow_table()``.
        """
        return self._backend.connect()

    def store(self) -> Store:
        """Raises WarehouseError if the warehouse has tables instead of segments."""
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
                f"The statement has {longest:,} characters, expected at most {LONGEST_STATEMENT:,}. Pass long texts "
                "as values of parameters."
            )
        if is_in_memory(self._location):
            return self._backend.ask(lambda connection: _asked_here(connection, kind, asked, limit))
        return process.ask(kind, self._id, self._asked_at, asked, *more, limit=limit)


def _asked_here(connection: duckdb.DuckDBPyConnection, kind: str, asked: Sequence[AskedQuery], limit: TimeLimit) -> Any:
    from nightjar.warehouse.reading.querying import run_arrow_query, run_columns_query, run_query, run_stoppable

    if kind != "rows":
        run = {"columns": run_columns_query, "table": run_arrow_query}[kind]
        return run_stoppable(lambda: run(connection, *asked[0]), connection, limit)
    return run_stoppable(lambda: [run_query(connection, *one) for one in asked], connection, limit)


class Unlocked(Warehouse):
    """A warehouse for its owner, with all rights of DuckDB: writing files, attaching databases, creating tables.

    Tables are in memory and last as long as this object. The object shows the runs that were published at its creation.
    """

    def __init__(self, location: str | Path) -> None:
        super().__init__(location)
        self._connection = self.connect()

    def query_all(
        self,
        asked: Sequence[AskedQuery],
        *,
        timeout_seconds: float = 0,  # noqa: ARG002 - no limit
        largest_bytes: int | None = None,  # noqa: ARG002 - no limit
    ) -> list[QueryResult]:
        from nightjar.warehouse.reading.querying import run_statement, run_stoppable

        def run() -> list[QueryResult]:
            return [run_statement(self._connection, *one) for one in asked]

        return run_stoppable(run, self._connection, TimeLimit(math.inf))

    def statements(
        self,
        text: str,
        *,
        timeout_seconds: float = 0,  # noqa: ARG002 - no limit
    ) -> list[WrittenStatement]:
        return split_statements(text)


def connect(location: str | Path | None = None) -> duckdb.DuckDBPyConnection:
    """Returns a DuckDB connection to a warehouse. See ``Warehouse`` for ``location``, and its method ``connect``."""
    return Warehouse(location if location is not None else resolve_warehouse()).connect()


def model_price(warehouse: Warehouse, model: str) -> tuple[float, float] | None:
    """Returns the current prices of a million prompt tokens and of a million completion tokens, or None if unknown."""
    try:
        rows = warehouse.query(_PRICE, {"model": model}).rows
    except WarehouseError:  # a missing or unreachable warehouse is reported by the run itself
        return None
    return (rows[0][0], rows[0][1]) if rows else None
