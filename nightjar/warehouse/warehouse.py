"""The warehouse: a folder with the DuckDB database of all published runs."""

from __future__ import annotations

import os
from contextlib import closing
from importlib import resources
from pathlib import Path

from nightjar.errors import WarehouseError
from nightjar.warehouse import schema
from nightjar.warehouse.database import (
    attached,
    connect_read_only,
    connect_scratch,
    exclusive,
    explained,
)
from nightjar.warehouse.publishing import PublishReport, replace_run, stage_run
from nightjar.warehouse.querying import (
    QUERY_TIMEOUT_SECONDS,
    Parameters,
    QueryResult,
    run_query,
)


def resolve_warehouse(explicit: str | None = None) -> Path:
    """Returns the folder named here, by ``NIGHTJAR_WAREHOUSE``, or else ``outputs/warehouse``."""
    return Path(explicit or os.environ.get("NIGHTJAR_WAREHOUSE") or "outputs/warehouse")


class Warehouse:
    """All published runs, in ``nightjar.duckdb`` of a folder.

    Nothing stays open between two calls. Every call waits for its turn, so that several processes
    may publish and query at the same time.

    Attributes:
        folder: made by the first publish.
        database: the DuckDB file in it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.database = self.folder / "nightjar.duckdb"

    def publish(self, run_dir: str | Path) -> PublishReport:
        """Makes the warehouse hold this run as its directory has it now.

        Publishing again replaces the run's rows. Either all of them are there afterwards, or the
        warehouse is as it was.

        Raises:
            WarehouseError: the run directory is damaged, or the warehouse cannot be written.
        """
        run_dir = Path(run_dir)
        self._make_folder()
        with (
            explained(f"Cannot publish {run_dir}"),
            closing(connect_scratch(self.database)) as connection,
        ):
            report = stage_run(connection, run_dir)
            with (
                exclusive(self.database, f"publishing {run_dir}"),
                attached(connection, self.database),
            ):
                schema.migrate(connection)
                replace_run(connection)
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
            WarehouseError: there is no warehouse, the statement is refused, or it takes too long.
        """
        self._require_database()
        with exclusive(self.database, "a query"):
            with closing(connect_read_only(self.database)) as connection:
                if schema.is_current(connection):
                    return run_query(connection, sql, parameters, timeout_seconds)
            self._migrate()
            with closing(connect_read_only(self.database)) as connection:
                return run_query(connection, sql, parameters, timeout_seconds)

    def catalog(self) -> QueryResult:
        """Returns every table and view with its columns: table, about, column, type, note."""
        catalog = resources.files(__package__) / "queries" / "catalog.sql"
        return self.query(catalog.read_text("utf-8"))

    def _migrate(self) -> None:
        with (
            explained(f"Cannot bring {self.database} up to date"),
            closing(connect_scratch(self.database)) as connection,
            attached(connection, self.database),
        ):
            schema.migrate(connection)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WarehouseError(f"Cannot create the warehouse {self.folder}: {error}") from error

    def _require_database(self) -> None:
        if not self.database.is_file():
            raise WarehouseError(
                f"No warehouse at {self.folder.absolute()}. Run an evaluation first, with "
                "'nightjar eval run', or name a folder with --warehouse or NIGHTJAR_WAREHOUSE."
            )
