"""``nightjar.duckdb``: the warehouse as a database file, for people's own tools.

It holds views over the segments that were there when it was written, and the prices: opening it costs nothing,
whatever the size of the warehouse. It is read only, replaced as a whole by every publish, and disposable.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from pathlib import Path

import duckdb
from filelock import FileLock

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import STORAGE_VERSION, database_name, explained, quoted, transaction
from nightjar.warehouse.reading.damage import damage_named
from nightjar.warehouse.reading.reader import Look, read_patiently
from nightjar.warehouse.reading.relations import define, define_segments, views_version
from nightjar.warehouse.storage.store import Store

NAME = "nightjar.duckdb"

_LOCK_NAME = "snapshot.lock"
_LOCK_TIMEOUT_SECONDS = 30.0

_log = logging.getLogger(__name__)


def write_snapshot(store: Store) -> None:
    """Replaces the database file by one of the segments that are there now; warns where that fails.

    Where several processes ask at once, the first one writes, and the next one for all the others. Nothing is lost
    without the file: the segments are what counts. An object store has none.
    """
    if (folder := store.path) is None:
        return
    asked_at = time.time_ns()
    try:
        with FileLock(folder / _LOCK_NAME, timeout=_LOCK_TIMEOUT_SECONDS, mode=0o666):
            listed_at = (folder / NAME).stat().st_mtime_ns if (folder / NAME).exists() else 0
            if listed_at < asked_at:
                with damage_named(store):
                    read_patiently(store, lambda look: _replace(store, folder, look))
    except (OSError, WarehouseError) as error:
        _log.warning("Cannot replace %s, which 'nightjar sql' does not need: %s", folder / NAME, error)


def _replace(store: Store, folder: Path, look: Look) -> None:
    _remove_leftovers(folder)
    beside = folder / f".{NAME}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"
    listed_at = time.time_ns()
    try:
        with explained(f"Cannot write {beside}"), database_name(beside) as path:
            try:
                _write(store, look, path, folder / NAME)
            except duckdb.Error:  # it may be what is there now that cannot be read
                path.unlink(missing_ok=True)
                _write(store, look, path)
        os.utime(beside, ns=(listed_at, listed_at))
        beside.chmod(0o444)
        Path(f"{folder / NAME}.wal").unlink(missing_ok=True)
        beside.replace(folder / NAME)
    finally:
        _remove_leftovers(folder)


def _remove_leftovers(folder: Path) -> None:
    """Removes what this process, or a dead one, has not finished; the lock keeps others out."""
    for path in folder.glob(f".{NAME}.*"):
        path.unlink(missing_ok=True)


def _write(store: Store, look: Look, path: Path, previous: Path | None = None) -> None:
    """Writes the database file; with a previous one, whose views are kept, in half the time."""
    if previous is not None and previous.exists():
        shutil.copyfile(previous, path)
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH {quoted(path)} AS nightjar (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE nightjar; SET TimeZone = 'UTC'; SET GLOBAL parquet_metadata_cache = true")
        define_again = define_segments if _has_views(connection) else define
        with transaction(connection):
            define_again(connection, look(), store.file, store.records())
            connection.execute(f"CREATE OR REPLACE MACRO segments.views_version() AS {quoted(views_version())}")
        connection.execute("USE memory; DETACH nightjar")


def _has_views(connection: duckdb.DuckDBPyConnection) -> bool:
    """Says whether the views are those of this Nightjar."""
    try:
        return connection.execute("SELECT segments.views_version()").fetchone() == (views_version(),)
    except duckdb.Error:
        return False
