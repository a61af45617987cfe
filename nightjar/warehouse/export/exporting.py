"""Writes some runs of a warehouse into files to hand on: Parquet, CSV, JSON lines, or one DuckDB file.

A part is written at a time, so memory does not grow with the data. The target appears when it is complete; where a
segment is packed or pruned meanwhile, all of it is written again.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import orjson

from nightjar import __version__
from nightjar.errors import WarehouseError
from nightjar.scratch import scratch_folder
from nightjar.warehouse.database import STORAGE_VERSION, connect_scratch, database_name, explained, quoted
from nightjar.warehouse.export.files import TABLES, write_csv, write_jsonl, write_parquet
from nightjar.warehouse.export.runs import ExportConnection, ExportedRun, Selection, choose_runs
from nightjar.warehouse.reading.damage import damage_named
from nightjar.warehouse.reading.reader import Look, read_patiently
from nightjar.warehouse.reading.relations import define_records, views_script
from nightjar.warehouse.storage.segments import KINDS
from nightjar.warehouse.storage.store import Records, Store
from nightjar.warehouse.writing.bulk import Progress, silent

MANIFEST = "export.json"
"""The file of an export in a folder that says what it is."""

_ORDER = {
    "runs": "run_id",
    "rollouts": "run_id, example_id, rollout_index",
    "attempts": "run_id, finished_at",
}


class ExportFormat(StrEnum):
    """What an export is written as."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
    DUCKDB = "duckdb"


_WRITERS = {
    ExportFormat.PARQUET: write_parquet,
    ExportFormat.CSV: write_csv,
    ExportFormat.JSONL: write_jsonl,
}


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote.

    Attributes:
        target: the folder or file.
        runs: how many there are in it.
        rows: table to number of rows.
        bytes: how large it is.
        seconds: how long it took.
    """

    target: Path
    runs: int
    rows: dict[str, int]
    bytes: int
    seconds: float


def format_of(target: Path) -> ExportFormat:
    """Returns the format that the name of a target stands for.

    Example:
        >>> format_of(Path("gsm8k.duckdb")).value, format_of(Path("for-ann")).value
        ('duckdb', 'parquet')
    """
    return ExportFormat.DUCKDB if target.suffix in {".duckdb", ".db", ".ddb"} else ExportFormat.PARQUET


def export(
    store: Store,
    target: Path,
    *,
    chosen: Selection | None = None,
    output_format: ExportFormat | None = None,
    tables: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> ExportReport:
    """Writes runs into a folder, or into one DuckDB file.

    Args:
        store: the warehouse.
        target: where to; must not be there yet.
        chosen: which runs; None for all.
        output_format: None for what the name of the target stands for.
        tables: which tables; None for runs, rollouts, attempts and examples. A DuckDB file has all.
        force: replaces an earlier export.
        progress: is told how many parts are written.

    Raises:
        WarehouseError: there is no such run or table, the target is there already, or it cannot be written.
    """
    started = time.monotonic()
    target = Path(target)
    chosen, output_format = chosen or Selection(), output_format or format_of(target)
    is_folder = output_format is not ExportFormat.DUCKDB
    names = _checked(tables, is_folder=is_folder)
    _check_target(target, store.path, is_folder=is_folder, force=force)
    runs = choose_runs(store, chosen)

    def write(look: Look) -> dict[str, int]:
        with _written_beside(target) as beside, _reading(store, look, target) as source:
            if not is_folder:
                with database_name(beside) as path:
                    return _write_database(source, path, runs, store.records(), progress)
            beside.mkdir()
            rows = _WRITERS[output_format](source, beside, runs, names, progress)
            (beside / MANIFEST).write_bytes(_manifest(store, chosen, output_format, runs, rows))
            return rows

    rows = read_patiently(store, write)
    return ExportReport(target, len(runs), rows, _length(target), time.monotonic() - started)


def _write_database(
    source: ExportConnection, path: Path, runs: Sequence[ExportedRun], records: Records, progress: Progress
) -> dict[str, int]:
    """Writes the tables of a segment, with prices and nights, and returns how many rows each of the former has."""
    connection = source.connection
    connection.execute(f"ATTACH {quoted(path)} AS target (STORAGE_VERSION '{STORAGE_VERSION}')")
    connection.execute("USE target; CREATE SCHEMA segments")
    define_records(connection, records)
    for kind in KINDS:
        connection.execute(f"CREATE TABLE segments.{kind} AS FROM memory.segments.{kind} LIMIT 0")
    connection.execute(views_script())
    connection.execute("USE memory")
    _fill(source, runs, progress)
    counts = {
        kind: connection.execute(f"SELECT count(*) FROM target.segments.{kind}").fetchall()[0][0]  # noqa: S608
        for kind in KINDS
    }
    connection.execute("DETACH target")
    return counts


def _fill(source: ExportConnection, runs: Sequence[ExportedRun], progress: Progress) -> None:
    parts = list(source.slices(runs))
    for done, run_ids in enumerate(parts, start=1):
        source.narrow(run_ids)
        for kind, order in _ORDER.items():
            source.connection.execute(f"INSERT INTO target.segments.{kind} FROM segments.{kind} ORDER BY {order}")
        progress(done, len(parts))
    for condition in source.example_parts(runs, "content_id"):
        source.connection.execute(
            "INSERT INTO target.segments.examples "  # noqa: S608
            f"SELECT DISTINCT ON (content_id) * FROM segments.examples WHERE {condition} ORDER BY content_id"
        )


@contextmanager
def _reading(store: Store, look: Look, target: Path) -> Iterator[ExportConnection]:
    """Gives a connection that reads the segments that are there now, until the end of the export."""
    with (
        scratch_folder() as spill,
        damage_named(store),
        explained(f"Cannot export to {str(target)!r}"),
        closing(connect_scratch(spill)) as connection,
    ):
        yield ExportConnection(store, look(), connection)


def _checked(tables: Sequence[str] | None, *, is_folder: bool) -> Sequence[str]:
    if tables is not None and not is_folder:
        raise WarehouseError("A DuckDB file has all tables: leave --tables out.")
    unknown = [table for table in tables or () if table not in TABLES]
    if unknown:
        raise WarehouseError(f"There is no table {unknown[0]!r} to export. Choose from: {', '.join(TABLES)}.")
    return list(dict.fromkeys(tables or KINDS))


def _manifest(
    store: Store, chosen: Selection, output_format: ExportFormat, runs: Sequence[ExportedRun], rows: dict[str, int]
) -> bytes:
    content = {
        "nightjar_version": __version__,
        "exported_at": datetime.now(UTC),
        "warehouse": str(store),
        "format": output_format.value,
        "selection": asdict(chosen),
        "runs": len(runs),
        "rows": rows,
    }
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _length(target: Path) -> int:
    files = target.rglob("*") if target.is_dir() else [target]
    return sum(file.stat().st_size for file in files if file.is_file())


def _check_target(target: Path, warehouse: Path | None, *, is_folder: bool, force: bool) -> None:
    """Refuses a place inside of the warehouse, what is there already, and what no export may replace."""
    if warehouse is not None and target.absolute().is_relative_to(warehouse.absolute()):
        raise WarehouseError(f"Cannot export to {str(target)!r}: that is inside of the warehouse.")
    if not os.path.lexists(target) or (is_folder and _is_empty(target)):
        return
    if not force:
        raise WarehouseError(f"{str(target)!r} is there already. Give another name, or --force to replace it.")
    if is_folder and not (target / MANIFEST).is_file():
        raise WarehouseError(f"{str(target)!r} is no export ({MANIFEST} is missing): not even --force replaces it.")
    if not is_folder and not target.is_file():
        raise WarehouseError(f"{str(target)!r} is no file: not even --force replaces it.")


@contextmanager
def _written_beside(target: Path) -> Iterator[Path]:
    """Gives a name to write to, and moves what is there to the target when the body has ended well."""
    mark = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    beside, aside = (target.parent / f".{target.name}.{mark}.{end}" for end in ("part", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        if target.is_dir():
            target.rename(aside)
        beside.rename(target)
    except OSError as error:
        raise WarehouseError(f"Cannot write {str(target)!r}: {error.strerror}") from error
    finally:
        for path in (beside, aside):
            _remove(path)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)
        Path(f"{path}.wal").unlink(missing_ok=True)
