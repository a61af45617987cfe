"""Looks at ``nightjar.duckdb``: can it be opened, and does it show what is there now?"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from nightjar.warehouse.database import reason
from nightjar.warehouse.reading.snapshot import NAME
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import Catalog

_FILES = re.compile(r"'([^']*)/([^/']+)/runs\.parquet'")

_VIEW = "SELECT sql FROM duckdb_views() WHERE schema_name = 'segments' AND view_name = 'runs'"


@dataclass(frozen=True)
class SnapshotFault:
    """What is wrong with the database file, and whether it can be used all the same."""

    what: str
    is_usable: bool


def snapshot_fault(folder: Folder, catalog: Catalog) -> SnapshotFault | None:
    """Returns what is wrong with the database file; None when it shows what counts."""
    path = folder.path / NAME
    if not path.is_file():
        return SnapshotFault("is missing", is_usable=False)
    if Path(f"{path}.wal").exists():
        return SnapshotFault("has a write-ahead file beside it, left by a program that wrote to it", is_usable=False)
    try:
        with closing(duckdb.connect(str(path), read_only=True)) as connection:
            row = connection.execute(_VIEW).fetchone()
            connection.execute("SELECT count(*) FROM runs").fetchall()
    except (duckdb.Error, OSError) as error:
        why = reason(error) if isinstance(error, duckdb.Error) else error
        return SnapshotFault(f"cannot be used: {why}", is_usable=False)
    shown = {(place, name) for place, name in _FILES.findall(row[0] if row else "")}
    there = {(folder.real_path, name.replace("'", "''")) for name in catalog.live}
    return None if shown == there else SnapshotFault("does not show the newest runs", is_usable=True)
