"""Looks at the files of all segments: are they there, whole, and do they hold what ``segment.json`` says of them?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import parquet, reason
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment
from nightjar.warehouse.storage.store import Fault
from nightjar.warehouse.writing.bulk import Progress, silent

_ROWS = "SELECT num_rows FROM parquet_file_metadata(?)"


def described_segments(folder: Folder) -> tuple[Catalog, list[Fault]]:
    """Returns the segments whose ``segment.json`` can be read, and what is wrong with those of the others.

    Raises:
        WarehouseError: a newer Nightjar wrote a segment, or it may not be read by this user.
    """
    segments, faults = [], []
    for path in sorted(path for path in folder.segments_path.glob("[!.]*") if path.is_dir()):
        try:
            segments.append(Segment.load(path.name, (path / COMMIT).read_bytes()))
        except PermissionError as error:
            raise folder.unreadable(path.name, error) from error
        except OSError as error:
            faults.append(Fault(path.name, COMMIT, f"cannot be read: {error.strerror}"))
        except WarehouseError as error:
            if error.__cause__ is None:  # of a newer Nightjar
                raise
            faults.append(Fault(path.name, COMMIT, f"is damaged: {error.__cause__}"))
    return Catalog.of(segments), faults


def file_faults(folder: Folder, catalog: Catalog, *, deep: bool, progress: Progress = silent) -> Iterator[Fault]:
    """Yields what lengths, footers and the columns that identify runs tell, of all segments that are needed.

    Args:
        folder: the warehouse.
        catalog: its segments.
        deep: compares all of every file with its SHA-256 too.
        progress: is told how many segments were read.
    """
    for done, segment in enumerate(catalog.needed.values(), start=1):
        yield from list(folder.faults([segment], deep=deep)) or _content_faults(folder, segment)
        progress(done, len(catalog.needed))


def _content_faults(folder: Folder, segment: Segment) -> Iterator[Fault]:
    """Yields the first that is wrong; with an instance of its own, because a damaged file can make one useless."""
    with closing(duckdb.connect(":memory:")) as connection:
        for kind in KINDS:
            path = folder.file(segment.segment_id, kind)
            try:
                [(rows,)] = connection.execute(_ROWS, [path]).fetchall()
                runs = f"SELECT run_id, version FROM {parquet(path)}"  # noqa: S608 - own path, quoted
                versions = dict(connection.execute(runs).fetchall()) if kind == "runs" else segment.versions
            except (duckdb.Error, UnicodeDecodeError) as error:
                yield Fault.of(segment, kind, f"cannot be read: {reason(error)}")
                return
            if rows != segment.rows[kind]:
                yield Fault.of(segment, kind, f"has {rows:,} rows instead of {segment.rows[kind]:,}")
            if versions != segment.versions:
                yield Fault(segment.segment_id, COMMIT, "says otherwise than runs.parquet")
