"""``Warehouse``: all published runs; the face of this package."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained
from nightjar.warehouse.folder import Folder
from nightjar.warehouse.packing import pack_as_needed
from nightjar.warehouse.publishing import PublishReport, publish_run
from nightjar.warehouse.querying import (
    QUERY_TIMEOUT_SECONDS,
    Parameters,
    QueryResult,
    run_arrow_query,
    run_query,
)
from nightjar.warehouse.reader import Reader
from nightjar.warehouse.relations import define
from nightjar.warehouse.snapshot import write_snapshot
from nightjar.warehouse.upgrading import upgrade_if_old

if TYPE_CHECKING:
    import pyarrow as pa


def resolve_warehouse(explicit: str | None = None) -> Path:
    """Returns the folder named here, by ``NIGHTJAR_WAREHOUSE``, or else ``outputs/warehouse``."""
    return Path(explicit or os.environ.get("NIGHTJAR_WAREHOUSE") or "outputs/warehouse")


class Warehouse:
    """All published runs, as segments in a folder.

    Any number of processes may publish and query at the same time: segments never change, and nothing stays open
    between two calls.

    Attributes:
        folder: made by the first publish.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self._segments = Folder(self.folder)
        self._reader = Reader(self._segments)

    def publish(self, run_dir: str | Path) -> PublishReport:
        """Makes the warehouse hold this run as its directory has it now.

        Publishing again replaces the run, unless the warehouse holds it with newer attempts. Either all of it is
        there afterwards, or the warehouse is as it was.

        Raises:
            WarehouseError: the run directory is damaged, or the warehouse cannot be written.
        """
        upgrade_if_old(self._segments)
        report = publish_run(self._segments, Path(run_dir))
        if report.is_new:
            pack_as_needed(self._segments)
            write_snapshot(self._segments)
        return report

    def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
    ) -> QueryResult:
        """Runs one statement that only reads; it sees the warehouse's tables and nothing else.

        Args:
            sql: a SELECT, WITH, FROM, PIVOT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN.
            parameters: values for ``?`` (a sequence) or ``$name`` (a mapping).
            timeout_seconds: how long it may run.

        Raises:
            WarehouseError: there is no warehouse, the statement is refused, takes too long or too much memory.
        """
        self._require()
        return self._reader.ask(lambda connection: run_query(connection, sql, parameters, timeout_seconds))

    def query_arrow(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
    ) -> pa.Table:
        """Runs one statement that only reads, and returns an Arrow table; otherwise like ``query``."""
        self._require()
        return self._reader.ask(lambda connection: run_arrow_query(connection, sql, parameters, timeout_seconds))

    def catalog(self) -> QueryResult:
        """Returns every table and view with its columns: table, about, column, type, note."""
        catalog = resources.files(__package__) / "queries" / "catalog.sql"
        return self.query(catalog.read_text("utf-8"))

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Returns a DuckDB connection of the caller's own, for notebooks.

        It sees what is published now, as views; what it makes beside them is in memory. Results are had as
        ``.fetchall()``, ``.df()`` (pandas), ``.pl()`` (polars) or ``.to_arrow_table()``. Ask for another connection
        to see what was published since.

        Raises:
            WarehouseError: there is no warehouse.
        """
        self._require()
        connection = duckdb.connect(":memory:")
        with explained(f"Cannot read the warehouse {self.folder}"):
            connection.execute("SET TimeZone = 'UTC'")
            self._segments.prepare(connection)
            define(connection, self._segments.catalog(), self._segments.file, self._segments.prices())
        return connection

    def _require(self) -> None:
        upgrade_if_old(self._segments)
        if not self._segments.exists():
            raise WarehouseError(
                f"No warehouse at {self.folder.absolute()}. Run an evaluation first, with "
                "'nightjar eval run', or name a folder with --warehouse or NIGHTJAR_WAREHOUSE."
            )
