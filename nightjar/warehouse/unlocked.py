"""``Unlocked``: a warehouse to its owner, who may do with a connection what DuckDB can do."""

from __future__ import annotations

from pathlib import Path

from nightjar.warehouse.reading.querying import Parameters, QueryResult, run_statement
from nightjar.warehouse.reading.stopping import run_stoppable
from nightjar.warehouse.warehouse import Warehouse


class Unlocked(Warehouse):
    """Runs any statement: to write files, attach databases, load extensions, change settings, make tables and views.

    Tables and views are in memory and last as long as this object. The runs are those that were published when it was
    made, and stay as they are: segments are immutable.

    Raises:
        WarehouseError: there is no warehouse.
    """

    def __init__(self, location: str | Path) -> None:
        super().__init__(location)
        self._connection = self.connect()

    def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float = 0,  # noqa: ARG002 - the owner waits as long as it takes
    ) -> QueryResult:
        """Runs one statement, as long as it takes; Ctrl-C stops it.

        Raises:
            WarehouseError: it is more than one statement, DuckDB refuses it, or it answers too much.
        """
        connection = self._connection
        return run_stoppable(lambda: run_statement(connection, sql, parameters), connection.interrupt)
