"""``nightjar.duckdb``: the warehouse as a database file, for people's own tools.

It holds views over the segments that were there when it was written, and the prices: opening it costs nothing,
whatever the size of the warehouse. It is read only, replaced as a whole by every publish, and disposable.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

import duckdb
from filelock import FileLock

from nightjar.errors import WarehouseError
from nightjar.warehouse import schema
from nightjar.warehouse.database import STORAGE_VERSION, database_name, explained, quoted, transaction
from nightjar.warehouse.reading.damage import damage_named
from nightjar.warehouse.reading.reader import Look, read_patiently
from nightjar.warehouse.reading.relations import define
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.store import Store

NAME = "nightjar.duckdb"

_LOCK_NAME = "snapshot.lock"
_LOCK_TIMEOUT_SECONDS = 30.0

_log = logging.getLogger(__name__)


def write_snapshot(folder: Store) -> None:
    """Replaces the database file by one of the segments that are there now; warns where that fails.

    Where several processes ask at once, the first one writes, and the next one for all the others. Nothing is lost
    without the file: the segments are what counts. An object store has none.
    """
    if not isinstance(folder, Folder):
        return
    asked_at = time.time_ns()
    try:
        with FileLock(folder.path / _LOCK_NAME, timeout=_LOCK_TIMEOUT_SECONDS, mode=0o666):
            if _state_of(folder.path / NAME) < asked_at:
                with damage_named(folder):
                    read_patiently(folder, lambda look: _replace(folder, look))
    except (OSError, WarehouseError) as error:
        _log.warning("Cannot replace %s, which 'nightjar sql' does not need: %s", folder.path / NAME, error)


def _state_of(path: Path) -> int:
    """When the segments were listed that the file has, in ns of Unix time; 0 without a file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _replace(folder: Folder, look: Look) -> None:
    _remove_leftovers(folder)
    beside = folder.path / f".{NAME}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"
    listed_at = time.time_ns()
    try:
        with explained(f"Cannot write {beside}"), database_name(beside) as path:
            _write(folder, look, path)
        os.utime(beside, ns=(listed_at, listed_at))
        beside.chmod(0o444)
        with suppress(FileNotFoundError):
            Path(f"{folder.path / NAME}.wal").unlink()
        beside.replace(folder.path / NAME)
    finally:
        _remove_leftovers(folder)


def _remove_leftovers(folder: Folder) -> None:
    """Removes what this process, or a dead one, has not finished; the lock keeps others out."""
    for path in folder.path.glob(f".{NAME}.*"):
        path.unlink(missing_ok=True)


def _write(folder: Folder, look: Look, path: Path) -> None:
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH {quoted(path)} AS nightjar (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE nightjar; SET TimeZone = 'UTC'")
        with transaction(connection):
            schema.note(connection)
            define(connection, look(), folder.file, folder.prices())
        connection.execute("USE memory; DETACH nightjar")
