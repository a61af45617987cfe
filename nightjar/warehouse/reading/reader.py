"""Reads the current segments of a warehouse, and traces errors to damaged files.

DuckDB's error about a damaged file often names no file. So when one of Nightjar's own statements fails, the files are
compared with their ``segment.json``. A user's statement may fail in the same way without damage. After such an error,
no file is read, and the message says how to check the files.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TypeAlias, TypeVar

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained, reason
from nightjar.warehouse.reading.prepared_views import copy_views, define_current
from nightjar.warehouse.reading.process import TimeLimit
from nightjar.warehouse.reading.querying import connect_locked, run_query, run_stoppable
from nightjar.warehouse.reading.result import Parameters, QueryResult
from nightjar.warehouse.storage.segments import COMMIT, Catalog, Segment
from nightjar.warehouse.storage.store import Fault, Store

_TRIES = 5
_FEW_RUNS = 5

_DuckDBError: TypeAlias = duckdb.Error | UnicodeDecodeError

_POSSIBLE_DAMAGE = (
    duckdb.IOException,
    duckdb.InvalidInputException,
    duckdb.InternalException,
    duckdb.FatalException,
    UnicodeDecodeError,
)
"""The errors that damage can cause in a user's statement. Damage can also cause errors without a class of their own."""

_NEVER_DAMAGE = (duckdb.OutOfMemoryException, duckdb.InterruptException)

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

Look = Callable[[], Catalog]


def read_patiently(store: Store, operation: Callable[[Look], Answer]) -> Answer:
    """Calls a function. If a segment was removed meanwhile, calls the function again with a new listing."""
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
        self._scratch = Path(gettempdir()) / f"nightjar-{uuid.uuid4().hex}"
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._defined: object = None
        self._warned: set[str] = set()

    def ask(self, question: Callable[[duckdb.DuckDBPyConnection], Answer]) -> Answer:
        return read_patiently(self._store, lambda look: self._ask(look, question))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._connection, self._defined = None, None

    def _ask(self, look: Look, question: Callable[[duckdb.DuckDBPyConnection], Answer]) -> Answer:
        with damage_named(self._store), explained(f"Cannot read the warehouse {self._store}"):
            cursor = self._refreshed(look)
        try:
            with damage_named(self._store, is_users=True):
                return question(cursor)
        except WarehouseError as error:
            if isinstance(error.__cause__, duckdb.InternalException | duckdb.FatalException):
                self.close()  # DuckDB refuses to use such an instance any further
            raise
        finally:
            cursor.close()

    def _refreshed(self, look: Look) -> duckdb.DuckDBPyConnection:
        with self._lock:
            catalog, records = look(), self._store.records()
            if self._connection is None:
                views = self._scratch / "memory.duckdb"  # a statement can name the database by this name
                spill, file = self._scratch / "spill", views if copy_views(views) else None
                self._connection = connect_locked(self._store.prepare, spill, file)
            state = (frozenset(catalog.segments), records)
            if self._defined != state:
                self._warn_of_undescribed(catalog)
                define_current(self._connection, catalog, self._store.file, records)
                self._defined = state
            return self._connection.cursor()

    def _warn_of_undescribed(self, catalog: Catalog) -> None:
        for name in self._store.undescribed(catalog) - self._warned:
            self._warned.add(name)
            _log.warning("Segment %r is ignored: its %s is missing. %s", name, COMMIT, self._store.advice(name))


def ask_once(store: Store, sql: str, parameters: Parameters | None = None) -> QueryResult:
    limit = TimeLimit()
    with closing(Reader(store)) as reader:
        return reader.ask(
            lambda connection: run_stoppable(lambda: run_query(connection, sql, parameters), connection, limit)
        )


@contextmanager
def damage_named(store: Store, *, deep: bool = True, is_users: bool = False) -> Iterator[None]:
    """Replaces an error that a damaged file causes by an error that names the segment, the runs and the remedy.

    ``deep`` reads the files completely to find the damage. ``is_users`` says that a user wrote the
    statement; no file is read then, because most errors of such statements have another cause.
    """
    try:
        yield
    except (WarehouseError, duckdb.Error, UnicodeDecodeError) as error:
        cause = error.__cause__ if isinstance(error, WarehouseError) else error
        if not isinstance(cause, _DuckDBError) or not _may_be_damage(cause, is_users=is_users):
            raise
        message = _found(store, deep=deep and not is_users)
        if message is None and is_users and _is_doubtful(cause) and not store.is_remote:
            message = f"{str(error).removesuffix('.')}. That may be damage. {store.advice('', is_hidden=True)}"
        if message is None:
            raise
        raise WarehouseError(message) from cause


def refuse_damaged(store: Store, segments: Iterable[Segment]) -> None:
    """Raises WarehouseError if a file is damaged, because a copy of the file would look undamaged."""
    for segment in segments:
        for fault in store.faults([segment], deep=True):
            raise WarehouseError(_described(store, segment, fault))


def listed(run_ids: Iterable[str]) -> str:
    names = sorted(run_ids)
    shown = ", ".join(map(repr, names[:_FEW_RUNS]))
    more = f" and {len(names) - _FEW_RUNS:,} more" if len(names) > _FEW_RUNS else ""
    return f"run{'' if len(names) == 1 else 's'} {shown}{more}" if names else "no run"


def _may_be_damage(error: _DuckDBError, *, is_users: bool) -> bool:
    if isinstance(error, _NEVER_DAMAGE):
        return False
    return not is_users or isinstance(error, _POSSIBLE_DAMAGE) or type(error) is duckdb.Error


def _is_doubtful(error: _DuckDBError) -> bool:
    """Returns whether damage may explain the error; an invalid input with a reason is the user's."""
    return not isinstance(error, duckdb.InvalidInputException) or reason(error).endswith("Error:")


def _found(store: Store, *, deep: bool) -> str | None:
    with suppress(WarehouseError):
        needed = store.catalog().needed
        for is_deep in (False, True) if deep else (False,):
            for fault in store.faults(needed.values(), deep=is_deep):
                if fault.is_damage:
                    return _described(store, needed[fault.segment_id], fault)
    return None


def _described(store: Store, segment: Segment, fault: Fault) -> str:
    state = "is damaged" if fault.is_damage else "cannot be read"
    return (
        f"Segment {segment.segment_id!r} ({listed(segment.versions)}) {state}: "
        f"{fault.file} {fault.what}. {store.advice(segment.segment_id, is_hidden=fault.is_hidden)}"
    )
