"""Looks at the files of segments: are they there, whole, readable, and of the columns that the tables have?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse import schema
from nightjar.warehouse.database import connect_scratch, parquet, quoted, reason
from nightjar.warehouse.reading.damage import Fault, digest_fault, length_fault
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import KINDS, Segment
from nightjar.warehouse.writing.bulk import Progress, silent

Columns = tuple[tuple[str, str], ...]
"""Names and types, as Parquet's footer has them."""

_FOOTERS = """
SELECT file_name, num_rows, columns
FROM parquet_file_metadata($files)
JOIN (
    SELECT file_name, list((name, coalesce(duckdb_type, ''))) AS columns FROM parquet_schema($files) GROUP BY file_name
) USING (file_name)
"""


@dataclass(frozen=True)
class _File:
    segment: Segment
    kind: str
    path: str

    def fault(self, what: str, *, is_hidden: bool = False) -> Fault:
        return Fault(self.segment.segment_id, self.kind, what, is_hidden)


@dataclass(frozen=True)
class _Footer:
    rows: int
    columns: Columns


def file_faults(folder: Folder, segments: Iterable[Segment]) -> Iterator[Fault]:
    """Yields what lengths and footers of files tell, without reading what is in them."""
    whole = []
    for file in _files(folder, segments):
        fault = length_fault(folder, file.segment, file.kind)
        if fault is None:
            whole.append(file)
        else:
            yield fault
    yield from _footer_faults(whole)


def page_faults(folder: Folder, segments: Sequence[Segment], progress: Progress = silent) -> Iterator[Fault]:
    """Yields what shows only when all of the files is read.

    Where ``segment.json`` has their digests, these tell; else whether DuckDB can read all of it.
    """
    for done, segment in enumerate(segments, start=1):
        for file in _files(folder, [segment]):
            fault = digest_fault(folder, segment, file.kind) if segment.digests else _content_fault(folder, file)
            if fault is not None:
                yield fault
        progress(done, len(segments))


def is_readable(folder: Folder, segment: Segment) -> bool:
    """Says whether all of a segment can be read."""
    return not any(file_faults(folder, [segment])) and not any(page_faults(folder, [segment]))


def _content_fault(folder: Folder, file: _File) -> Fault | None:
    """Returns why DuckDB cannot read all of a file.

    Raises:
        WarehouseError: there is too little memory or disk for it.
    """
    with TemporaryDirectory(prefix="nightjar-") as spill, closing(connect_scratch(Path(spill))) as connection:
        try:
            connection.execute(f"SELECT bit_xor(hash(t)) FROM {parquet(file.path)} AS t")  # noqa: S608
        except duckdb.OutOfMemoryException as error:
            raise WarehouseError(f"Cannot examine the warehouse {folder}: {reason(error)}") from error
        except (duckdb.Error, UnicodeDecodeError) as error:
            return file.fault(reason(error), is_hidden=True)
    return None


def uncompressed_bytes(folder: Folder, segments: Iterable[Segment]) -> int:
    """Returns how many bytes readable segments would take uncompressed."""
    paths = [file.path for file in _files(folder, segments)]
    if not paths:
        return 0
    with closing(duckdb.connect(":memory:")) as connection:
        [(total,)] = connection.execute(
            "SELECT coalesce(sum(total_uncompressed_size), 0)::BIGINT FROM parquet_metadata(?)", [paths]
        ).fetchall()
    return int(total)


def _files(folder: Folder, segments: Iterable[Segment]) -> Iterator[_File]:
    for segment in segments:
        for kind in KINDS:
            yield _File(segment, kind, folder.file(segment.segment_id, kind))


def _footer_faults(files: Sequence[_File]) -> Iterator[Fault]:
    footers, unreadable = _footers([file.path for file in files])
    for file in files:
        if file.path in unreadable:
            yield file.fault(unreadable[file.path])
        elif (footer := footers[file.path]).rows != file.segment.rows[file.kind]:
            yield file.fault(f"has {footer.rows:,} rows instead of {file.segment.rows[file.kind]:,}")
        elif footer.columns != _expected()[file.kind]:
            yield file.fault(f"has other columns than it should: {_difference(footer.columns, _expected()[file.kind])}")


def _footers(paths: list[str]) -> tuple[Mapping[str, _Footer], Mapping[str, str]]:
    """Path to footer, and path to why there is none; one file that cannot be read spoils the reading of many."""
    try:
        return _read_footers(paths), {}
    except duckdb.OutOfMemoryException as error:
        raise WarehouseError(f"Cannot read the footers of {len(paths):,} files: {reason(error)}") from error
    except (duckdb.Error, UnicodeDecodeError) as error:
        if len(paths) == 1:
            return {}, {paths[0]: reason(error)}
    half = len(paths) // 2
    (footers, unreadable), (others, more) = _footers(paths[:half]), _footers(paths[half:])
    return {**footers, **others}, {**unreadable, **more}


def _read_footers(paths: list[str]) -> dict[str, _Footer]:
    """Path to footer; with an instance of its own, because a damaged file can make one useless."""
    if not paths:
        return {}
    with closing(duckdb.connect(":memory:")) as connection:
        rows = connection.execute(_FOOTERS, {"files": paths}).fetchall()
    return {path: _Footer(count, tuple(_pair(column) for column in columns)) for path, count, columns in rows}


def _pair(column: Mapping[str, str] | tuple[str, str]) -> tuple[str, str]:
    name, kind = column.values() if isinstance(column, Mapping) else column
    return name, kind


@cache
def _expected() -> Mapping[str, Columns]:
    """Kind to the columns of a file with the columns of its table."""
    with TemporaryDirectory(prefix="nightjar-") as scratch, closing(duckdb.connect(":memory:")) as connection:
        schema.migrate(connection)
        paths = {kind: f"{scratch}/{kind}.parquet" for kind in KINDS}
        for kind, path in paths.items():
            connection.execute(f"COPY {kind} TO {quoted(path)} (FORMAT parquet)")
        footers = _read_footers(list(paths.values()))
    return {kind: footers[path].columns for kind, path in paths.items()}


def _difference(found: Columns, expected: Columns) -> str:
    missing = [f"{name} {kind} is missing" for name, kind in expected if (name, kind) not in found]
    unknown = [f"{name} {kind} is unknown" for name, kind in found if (name, kind) not in expected]
    return ", ".join([*missing, *unknown]) or "they are in another order"
