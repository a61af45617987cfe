"""``nightjar.duckdb``: records, and views over the present segments, as a read-only database file for other tools."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path

import duckdb

from nightjar.core.files import file_lock, replacing
from nightjar.errors import WarehouseError
from nightjar.warehouse.database import STORAGE_VERSION, database_name, explained, quoted
from nightjar.warehouse.reading.prepared_views import copy_views, define_current
from nightjar.warehouse.reading.reader import Look, damage_named, read_patiently
from nightjar.warehouse.storage.store import Store

NAME = "nightjar.duckdb"

_LOCK_NAME = "snapshot.lock"

_log = logging.getLogger(__name__)


def write_snapshot(store: Store) -> None:
    """Replaces the database file once for all processes that wait for the file. Only warns if the replacement fails."""
    if (folder := store.path) is None:
        return
    asked_at = time.time_ns()
    try:
        with file_lock(folder / _LOCK_NAME, is_shared=True):
            listed_at = (folder / NAME).stat().st_mtime_ns if (folder / NAME).exists() else 0
            if listed_at < asked_at:
                with damage_named(store):
                    read_patiently(store, lambda look: _replace(store, folder, look))
    except (OSError, WarehouseError) as error:
        _log.warning("Cannot replace %s, which 'nightjar sql' does not need: %s", folder / NAME, error)


def _replace(store: Store, folder: Path, look: Look) -> None:
    _remove_leftovers(folder)
    listed_at = time.time_ns()
    try:
        with replacing(folder / NAME) as beside:
            with explained(f"Cannot write {beside}"), database_name(beside) as path:
                try:
                    _write(store, look, path, folder / NAME)
                except duckdb.Error:  # perhaps because the previous file cannot be read
                    path.unlink(missing_ok=True)
                    _write(store, look, path)
            os.utime(beside, ns=(listed_at, listed_at))
            beside.chmod(0o444)
            Path(f"{folder / NAME}.wal").unlink(missing_ok=True)
    finally:
        _remove_leftovers(folder)


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob(f".{NAME}.*"):
        path.unlink(missing_ok=True)


def _write(store: Store, look: Look, path: Path, previous: Path | None = None) -> None:
    if previous is not None and previous.exists():
        shutil.copyfile(previous, path)
    else:
        copy_views(path)
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH {quoted(path)} AS nightjar (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE nightjar; SET TimeZone = 'UTC'; SET GLOBAL parquet_metadata_cache = true")
        define_current(connection, look(), store.file, store.records())
        connection.execute("USE memory; DETACH nightjar")
