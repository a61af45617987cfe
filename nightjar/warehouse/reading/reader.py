"""``Reader``: answers questions about the segments that are there now.

A DuckDB instance in memory has views over the files; it holds no file open between two questions, and what it
has learnt of the files stays. When a segment that it was going to read is removed under its hands, it looks again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import gettempdir
from typing import TypeVar

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained, transaction
from nightjar.warehouse.reading.damage import damage_named
from nightjar.warehouse.reading.querying import connect_locked, run_query
from nightjar.warehouse.reading.relations import define, define_segments
from nightjar.warehouse.reading.result import Parameters, QueryResult
from nightjar.warehouse.reading.running import run_stoppable
from nightjar.warehouse.reading.time_limit import TimeLimit
from nightjar.warehouse.storage.segments import COMMIT, Catalog
from nightjar.warehouse.storage.store import Store

_TRIES = 5

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

Look = Callable[[], Catalog]
"""Lists the segments that are there now."""


def read_patiently(store: Store, operation: Callable[[Look], Answer]) -> Answer:
    """Calls a function again when a segment that it was going to read was removed under its hands.

    Args:
        store: the warehouse.
        operation: is given a function that lists the segments. Where they are the same when it has missed a file,
            nothing was removed, and its error stands.
    """
    seen = Catalog()

    def look() -> Catalog:
        nonlocal seen
        seen = store.catalog()
        return seen

    for _ in range(_TRIES - 1):
        try:
            return operation(look)
        except WarehouseError as error:
            if not isinstance(error.__cause__, duckdb.Error) or store.catalog().segments.keys() == seen.segments.keys():
                raise
    return operation(look)


class Reader:
    """Reads one warehouse; may be used by several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._defined: object = None
        self._warned: set[str] = set()

    def ask(self, question: Callable[[duckdb.DuckDBPyConnection], Answer]) -> Answer:
        """Calls a function with a connection that can read the warehouse and nothing else.

        Raises:
            WarehouseError: the warehouse cannot be read, a segment is damaged, or what the function raises.
        """
        return read_patiently(self._store, lambda look: self._ask(look, question))

    def close(self) -> None:
        """Lets go of the instance; the next question makes another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._defined = None, None

    def _ask(self, look: Look, question: Callable[[duckdb.DuckDBPyConnection], Answer]) -> Answer:
        with damage_named(self._store), explained(f"Cannot read the warehouse {self._store}"):
            cursor = self._refreshed(look)
        try:
            with damage_named(self._store, is_users=True):
                return question(cursor)
        except WarehouseError as error:
            if isinstance(error.__cause__, duckdb.InternalException | duckdb.FatalException):
                self.close()  # DuckDB refuses to go on with such an instance
            raise
        finally:
            cursor.close()

    def _refreshed(self, look: Look) -> duckdb.DuckDBPyConnection:
        """Returns a connection whose views are those of the segments that are there now."""
        with self._lock:
            catalog, records = look(), self._store.records()
            if self._connection is None:
                spill = Path(gettempdir()) / f"nightjar-{uuid.uuid4().hex}"
                self._connection = connect_locked(self._store, spill)
            state = (frozenset(catalog.segments), records)
            if self._defined != state:
                self._warn_of_undescribed(catalog)
                make = define if self._defined is None else define_segments
                with transaction(self._connection):
                    make(self._connection, catalog, self._store.file, records)
                self._defined = state
            return self._connection.cursor()

    def _warn_of_undescribed(self, catalog: Catalog) -> None:
        """Says what is not in any answer."""
        for name in self._store.undescribed(catalog) - self._warned:
            self._warned.add(name)
            _log.warning("Segment %r does not count: its %s is missing. %s", name, COMMIT, self._store.advice(name))


def ask_once(store: Store, sql: str, parameters: Parameters | None = None) -> QueryResult:
    """Runs one statement that only reads, in a DuckDB instance of its own; raises like ``Warehouse.query``."""
    limit = TimeLimit()
    with closing(Reader(store)) as reader:
        return reader.ask(
            lambda connection: run_stoppable(lambda: run_query(connection, sql, parameters), connection, limit)
        )
