"""A database with the views, in the cache folder: a copy takes 3 ms, and defining the views takes DuckDB 250 ms."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import duckdb

from nightjar.core.files import cache_folder
from nightjar.warehouse.database import STORAGE_VERSION, quoted, transaction
from nightjar.warehouse.reading.relations import FileOf, define, define_segments, views_version
from nightjar.warehouse.storage.records import Records
from nightjar.warehouse.storage.segments import Catalog

_log = logging.getLogger(__name__)
_making = threading.Lock()


def copy_views(path: Path) -> bool:
    """Copies the database with the views to ``path``. Returns False if the cache folder cannot be used."""
    try:
        with _making:
            content = _prepared()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    except (OSError, RuntimeError, duckdb.Error) as error:
        _log.debug("The views are defined anew: %s", error)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    return True


def define_current(connection: duckdb.DuckDBPyConnection, catalog: Catalog, file_of: FileOf, records: Records) -> None:
    """Defines the segments, and the views unless the database has the current ones."""
    has_views = _has_current_views(connection)
    with transaction(connection):
        if has_views:
            define_segments(connection, catalog, file_of, records)
        else:
            define(connection, catalog, file_of, records)
            connection.execute(f"CREATE OR REPLACE MACRO segments.views_version() AS {quoted(views_version())}")


def _prepared() -> bytes:
    """Returns the content of the database. Makes the file if it is missing, damaged or of another version."""
    folder = cache_folder() / "views"
    prefix = f"{views_version()[:16]}-{duckdb.__version__}"
    for file in folder.glob(f"{prefix}-*.duckdb"):
        content = file.read_bytes()
        if file.name == f"{prefix}-{_digest(content)}.duckdb":
            return content
    folder.mkdir(parents=True, exist_ok=True)
    for outdated in folder.glob("*.duckdb"):
        outdated.unlink(missing_ok=True)
    beside = folder / f".{prefix}.{os.getpid()}.tmp"
    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute(f"ATTACH {quoted(beside)} AS views (STORAGE_VERSION '{STORAGE_VERSION}'); USE views")
            define_current(connection, Catalog(), lambda _, kind: kind, Records())
            connection.execute("USE memory; DETACH views")
        content = beside.read_bytes()
        beside.replace(folder / f"{prefix}-{_digest(content)}.duckdb")
    finally:
        beside.unlink(missing_ok=True)
    return content


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _has_current_views(connection: duckdb.DuckDBPyConnection) -> bool:
    try:
        return connection.execute("SELECT segments.views_version()").fetchone() == (views_version(),)
    except duckdb.Error:
        return False
