"""Brings segments back whose ``segment.json`` is missing or damaged, and sets aside those that cannot be.

One ``segment.json`` or Parquet file that cannot be read keeps everybody from all of the warehouse. What a
``segment.json`` says is in the Parquet files as well, except what the segment replaces and when it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import orjson

from nightjar.errors import WarehouseError
from nightjar.runs.jsonl import replace_file
from nightjar.warehouse.database import connect_scratch, explained, parquet
from nightjar.warehouse.doctor.files import is_readable
from nightjar.warehouse.reading.relations import selection
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import COMMIT, KINDS, SCHEMA, Segment, digest_of, is_pack_id
from nightjar.warehouse.writing.packing import new_pack_id
from nightjar.warehouse.writing.publishing import write_files

SET_ASIDE = "damaged"
"""The folder, beside ``segments``, of segments that cannot be read."""

_UNKNOWN = "unknown"


def undescribed(folder: Folder) -> dict[str, str]:
    """Returns the segments whose ``segment.json`` cannot be used, by name, and what is wrong with it.

    Raises:
        WarehouseError: a newer Nightjar wrote a segment, or it may not be read by this user.
    """
    names = sorted(path.name for path in folder.segments_path.glob("[!.]*") if path.is_dir())
    faults = ((name, _fault(folder, name)) for name in names)
    return {name: fault for name, fault in faults if fault is not None}


def mend(folder: Folder, name: str, replaces: Sequence[str] | None = None) -> bool:
    """Writes the ``segment.json`` of a segment anew from its other files.

    Args:
        folder: the warehouse.
        name: of the segment.
        replaces: the segments that it was made of; None where that is not known.

    Returns:
        Whether its files could all be read.
    """
    path = folder.segments_path / name
    try:
        segment = _described(path, name)
    except (duckdb.Error, UnicodeDecodeError, OSError):
        return False
    if replaces is not None:
        segment = replace(segment, replaces=tuple(replaces))
    is_something = bool(segment.versions) or segment.is_pack
    if not is_something or not is_readable(folder, replace(segment, digests={})):
        return False
    replace_file(path / COMMIT, [segment.dump()])
    (path / COMMIT).chmod(0o444)
    return True


def set_aside(folder: Folder, name: str) -> Path:
    """Moves a segment to where it does not count, and returns where that is.

    Raises:
        WarehouseError: it cannot be moved.
    """
    target = folder.path / SET_ASIDE / name
    try:
        target.parent.mkdir(exist_ok=True)
        while target.exists():
            target = target.with_name(f"{target.name}-")
        return (folder.segments_path / name).rename(target)
    except OSError as error:
        raise WarehouseError(f"Cannot set aside segment {name!r}: {error.strerror}") from error


def keep_examples(folder: Folder, name: str, path: Path) -> bool:
    """Puts the examples of a pack that was set aside into the warehouse again: later packs rely on them.

    Args:
        folder: the warehouse.
        name: of the pack.
        path: where it is now.

    Returns:
        Whether they could be read.

    Raises:
        WarehouseError: the disk is full or broken.
    """
    examples = path / "examples.parquet"
    if not examples.is_file():
        return False
    relations = {kind: selection(kind, [], folder.file) for kind in KINDS}
    relations["examples"] = f"FROM {parquet(examples)}"
    with (
        TemporaryDirectory(prefix="nightjar-") as spill,
        folder.scratch() as scratch,
        explained(f"Cannot write the warehouse {folder}"),
        closing(connect_scratch(Path(spill))) as connection,
    ):
        try:
            kept = write_files(
                connection,
                scratch,
                segment_id=new_pack_id(),
                versions={},
                relations=relations,
                replaces=[name],
            )
        except (duckdb.Error, UnicodeDecodeError) as error:
            if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
                raise
            return False
        folder.commit(kept, scratch)
    return True


def _fault(folder: Folder, name: str) -> str | None:
    try:
        content = (folder.segments_path / name / COMMIT).read_bytes()
    except PermissionError as error:
        raise folder.unreadable(name, error) from error
    except OSError as error:
        return f"{COMMIT}: {error.strerror}"
    try:
        Segment.load(name, content)
    except WarehouseError as error:
        if _is_newer(content):
            raise
        return str(error)
    return None


def _is_newer(content: bytes) -> bool:
    try:
        return int(orjson.loads(content)["schema"]) > SCHEMA
    except (ValueError, TypeError, KeyError):
        return False


def _described(path: Path, name: str) -> Segment:
    files = {kind: path / f"{kind}.parquet" for kind in KINDS}
    with TemporaryDirectory(prefix="nightjar-") as spill, closing(connect_scratch(Path(spill))) as connection:
        rows = {kind: _rows(connection, file) for kind, file in files.items()}
        found = connection.execute(f"SELECT run_id, version FROM {parquet(files['runs'])}")  # noqa: S608
        versions = dict(found.fetchall())
    return Segment(
        segment_id=name,
        versions=versions,
        rows=rows,
        sizes={kind: file.stat().st_size for kind, file in files.items()},
        created_at=datetime.fromtimestamp(files["runs"].stat().st_mtime, UTC),
        nightjar_version=_UNKNOWN,
        replaces=() if len(versions) == 1 and not is_pack_id(name) else (_UNKNOWN,),
        digests={kind: digest_of(file) for kind, file in files.items()},
    )


def _rows(connection: duckdb.DuckDBPyConnection, file: Path) -> int:
    [(rows,)] = connection.execute(f"SELECT count(*) FROM {parquet(file)}").fetchall()  # noqa: S608
    return int(rows)
