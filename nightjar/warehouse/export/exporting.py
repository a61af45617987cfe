"""Writes some runs of a warehouse into files to hand on: Parquet, CSV, JSON lines, or one DuckDB file.

A part is written at a time, so memory does not grow with the data. The target appears when it is complete; where a
segment is packed or pruned meanwhile, all of it is written again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from nightjar import __version__
from nightjar.errors import WarehouseError
from nightjar.warehouse.database import connect_scratch, database_name, explained
from nightjar.warehouse.export.database import write_database
from nightjar.warehouse.export.files import TABLES, write_csv, write_jsonl, write_parquet
from nightjar.warehouse.export.runs import ExportConnection, ExportedRun, Selection, choose_runs
from nightjar.warehouse.export.target import MANIFEST, check_target, written_beside
from nightjar.warehouse.reading.damage import damage_named
from nightjar.warehouse.reading.reader import Look, read_patiently
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.bulk import Progress, silent

DEFAULT_TABLES = ("runs", "rollouts", "attempts", "examples")


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
    check_target(target, store.path, is_folder=is_folder, force=force)
    runs = choose_runs(store, chosen)

    def write(look: Look) -> dict[str, int]:
        with written_beside(target) as beside, _reading(store, look, target) as source:
            if not is_folder:
                with database_name(beside) as path:
                    return write_database(source, path, runs, store.prices(), progress)
            beside.mkdir()
            rows = _WRITERS[output_format](source, beside, runs, names, progress)
            (beside / MANIFEST).write_bytes(_manifest(store, chosen, output_format, runs, rows))
            return rows

    rows = read_patiently(store, write)
    return ExportReport(target, len(runs), rows, _length(target), time.monotonic() - started)


@contextmanager
def _reading(store: Store, look: Look, target: Path) -> Iterator[ExportConnection]:
    """Gives a connection that reads the segments that are there now, until the end of the export."""
    with (
        TemporaryDirectory(prefix="nightjar-") as spill,
        damage_named(store),
        explained(f"Cannot export to {str(target)!r}"),
        closing(connect_scratch(Path(spill))) as connection,
    ):
        yield ExportConnection(store, look(), connection)


def _checked(tables: Sequence[str] | None, *, is_folder: bool) -> Sequence[str]:
    if tables is not None and not is_folder:
        raise WarehouseError("A DuckDB file has all tables: leave --tables out.")
    unknown = [table for table in tables or () if table not in TABLES]
    if unknown:
        raise WarehouseError(f"There is no table {unknown[0]!r} to export. Choose from: {', '.join(TABLES)}.")
    return list(dict.fromkeys(tables or DEFAULT_TABLES))


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
