"""Makes segments of the database that Nightjar kept before it had segments.

Until version 2 the warehouse was one database file, ``nightjar.duckdb``, with tables. The steps that are missing are
applied to a copy (``schema.py``), its tables become one segment, and the file is kept as ``nightjar-2.duckdb``, with
its write-ahead log. It has that name before the folder ``segments`` appears, which is complete then: an upgrade that
was killed before begins anew, and one that was killed later is done.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import closing
from filecmp import cmp
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse import schema
from nightjar.warehouse.database import connect_scratch, explained, quoted
from nightjar.warehouse.reading.snapshot import NAME, write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import KINDS
from nightjar.warehouse.writing.publishing import write_files

_LAST_DATABASE = 2
_PREFIX = ".upgrading-"
_LOCK_TIMEOUT_SECONDS = 600.0

_log = logging.getLogger(__name__)


def upgrade_if_old(folder: Folder) -> None:
    """Makes segments of an old database; does nothing where there is none.

    Raises:
        WarehouseError: the database is damaged, of a newer Nightjar, or in use, or the disk is full; it is as it was.
    """
    database = folder.path / NAME
    if folder.exists() or not database.is_file():
        return
    with folder.packing_alone(timeout_seconds=_LOCK_TIMEOUT_SECONDS) as alone:
        if not alone:
            raise WarehouseError(f"The warehouse {folder} is being upgraded by another process. Try again later.")
        if not folder.exists():
            _remove_leftovers(folder)
            _upgrade(folder, database)


def _remove_leftovers(folder: Folder) -> None:
    """Removes what a dead process has not finished; the lock keeps others out."""
    for path in folder.path.glob(f"{_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def _upgrade(folder: Folder, database: Path) -> None:
    """Upgrades; DuckDB holds the old database open all the while, so that no Nightjar of old can write it."""
    kept = _kept(database)
    with (
        explained(f"Cannot upgrade {database}"),
        TemporaryDirectory(prefix=_PREFIX, dir=folder.path) as temporary,
        closing(connect_scratch(Path(temporary) / "spill")) as connection,
    ):
        connection.execute(f"ATTACH {quoted(database)} AS original (READ_ONLY); USE original")
        found = schema.version(connection)
        if found > _LAST_DATABASE:  # a snapshot whose segments are gone
            return
        _log.warning("Upgrading the warehouse %s; the old database is kept as %s.", folder, kept.name)
        new = Folder(Path(temporary) / "new")
        new.segments_path.mkdir(parents=True)
        if found > 0:
            _write_upgraded(new, connection)
        _keep(database, kept, Path(temporary))
        new.segments_path.rename(folder.segments_path)
        write_snapshot(folder)


def _write_upgraded(new: Folder, connection: duckdb.DuckDBPyConnection) -> None:
    """Writes the segment of a copy: what DuckDB reads of the original includes its log."""
    copy = new.path / NAME
    connection.execute(f"ATTACH {quoted(copy)} AS copy; COPY FROM DATABASE original TO copy; USE copy")
    schema.migrate(connection)
    _write(new, connection)
    connection.execute("USE memory; DETACH copy")
    copy.unlink()


def _kept(database: Path) -> Path:
    """Returns where the old database is kept: where it is already, or where nothing else is."""
    stem = f"{database.stem}-{_LAST_DATABASE}"
    paths = (database.with_stem(f"{stem}{suffix}") for suffix in ("", *(f".{number}" for number in range(1, 100))))
    for path in paths:
        if not path.exists() or path.samefile(database) or cmp(path, database, shallow=False):
            return path
    raise WarehouseError(f"Cannot upgrade {database}: there are too many files {stem}.*.duckdb. Move them away.")


def _keep(database: Path, kept: Path, temporary: Path) -> None:
    """Gives the old database and its log other names too, before there are segments: a snapshot will take this one."""
    for suffix in (".wal", ""):
        source, target = Path(f"{database}{suffix}"), Path(f"{kept}{suffix}")
        if source.exists():
            _link(source, temporary / target.name)
            (temporary / target.name).replace(target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # no such links here; a read of the file lets go of DuckDB's lock, but is the last step
        shutil.copyfile(source, target)


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
