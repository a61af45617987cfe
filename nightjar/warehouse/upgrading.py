"""Makes segments of the database that Nightjar kept before it had segments.

Until version 2 the warehouse was one database file, ``nightjar.duckdb``, with tables. The steps that are missing are
applied to a copy (``schema.py``), its tables become one segment, and the file is kept as ``nightjar-2.duckdb``. The
folder ``segments`` appears when it is complete, so an upgrade that was killed begins anew.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse import schema
from nightjar.warehouse.database import connect_scratch, explained, quoted
from nightjar.warehouse.folder import Folder
from nightjar.warehouse.packing import packing_alone
from nightjar.warehouse.publishing import write_files
from nightjar.warehouse.segments import KINDS
from nightjar.warehouse.snapshot import NAME, write_snapshot

_LAST_DATABASE = 2
_LOCK_TIMEOUT_SECONDS = 600.0

_log = logging.getLogger(__name__)


def upgrade_if_old(folder: Folder) -> None:
    """Makes segments of an old database; does nothing where there is none.

    Raises:
        WarehouseError: the database is damaged, of a newer Nightjar, or the disk is full; it is as it was.
    """
    database = folder.path / NAME
    if folder.exists() or not database.is_file():
        return
    with packing_alone(folder, timeout_seconds=_LOCK_TIMEOUT_SECONDS) as alone:
        if not alone:
            raise WarehouseError(f"The warehouse {folder} is being upgraded by another process. Try again later.")
        if not folder.exists():
            _upgrade(folder, database)


def _upgrade(folder: Folder, database: Path) -> None:
    _log.warning("Upgrading the warehouse %s; the old database is kept as nightjar-%d.duckdb.", folder, _LAST_DATABASE)
    with (
        TemporaryDirectory(prefix=".upgrading-", dir=folder.path) as temporary,
        explained(f"Cannot upgrade {database}"),
        closing(connect_scratch(Path(temporary))) as connection,
    ):
        copy = Path(shutil.copyfile(database, Path(temporary) / NAME))
        connection.execute(f"ATTACH {quoted(copy)} AS old; USE old")
        new = Folder(Path(temporary) / "new")
        new.segments_path.mkdir(parents=True)
        if schema.version(connection) > 0:
            schema.migrate(connection)
            _write(new, connection)
        connection.execute("USE memory; DETACH old")
        _keep(database)
        new.segments_path.rename(folder.segments_path)
    write_snapshot(folder)


def _keep(database: Path) -> None:
    """Gives the old database its other name too, before there are segments: a snapshot will take this one."""
    kept = database.with_stem(f"{database.stem}-{_LAST_DATABASE}")
    try:
        os.link(database, kept)
    except FileExistsError:
        return
    except OSError:  # no such links here
        shutil.copyfile(database, kept)


def _write(folder: Folder, connection: duckdb.DuckDBPyConnection) -> None:
    versions = dict(connection.execute("SELECT run_id, version FROM runs").fetchall())
    if not versions:
        return
    with folder.scratch() as scratch:
        segment = write_files(
            connection,
            scratch,
            segment_id=f"upgraded-{_LAST_DATABASE}",
            versions=versions,
            relations={kind: f"FROM {kind}" for kind in KINDS},
            replaces=[NAME],
        )
        folder.commit(segment, scratch)
