"""Exports runs of a warehouse in slices, to folders of Parquet, CSV or JSON lines, or to one DuckDB file.

The whole export is repeated if a segment is packed or pruned during the export.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

import orjson

from nightjar import __version__
from nightjar.errors import WarehouseError
from nightjar.warehouse.database import STORAGE_VERSION, database_name, explained, quoted, scratch_connection
from nightjar.warehouse.exported_runs import ExportConnection, ExportedRun, Selection, choose_runs
from nightjar.warehouse.location import file_errors
from nightjar.warehouse.reading.reader import Look, damage_named, read_patiently
from nightjar.warehouse.reading.relations import define_records, views_script
from nightjar.warehouse.storage.records import Records
from nightjar.warehouse.storage.segments import KINDS, ORDER, PARQUET_OPTIONS, RUN_KINDS
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.publishing import Progress, silent

MANIFEST = "export.json"

TABLES = {
    "runs": "run_id",
    "rollouts": "run_id, example_id, rollout_index",
    "attempts": "run_id, example_id, rollout_index, attempt",
    "examples": "example_hash",
    "metrics": "run_id, example_id, rollout_index, name",
    "errors": "run_id, example_id, rollout_index",
}
"""The tables that can be exported, with the order of their rows."""

_DATABASES = {".duckdb", ".db", ".ddb"}
_NESTED = ("MAP", "STRUCT", "JSON")
_IN_FOLDERS = {"runs": "* EXCLUDE (env_id, model)", "rollouts": "* RENAME (model AS served_model)"}
"""The columns of tables in folders per environment and model."""

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_RESULTS = """
SELECT
    run_id, example_id, rollout_index, example_hash, task, prompt, completion, answer, info, reward, advantage,
    coalesce(metrics, MAP {}) AS metrics,
    CASE WHEN error IS NOT NULL THEN {
        'error': error,
        'message': error_message,
        'phase': error_phase,
        'error_chain_repr': error_chain,
        'traceback': error_traceback
    } END AS error,
    {'generation_ms': generation_ms, 'scoring_ms': scoring_ms, 'total_ms': total_ms} AS timing,
    is_completed, is_truncated, stop_condition,
    CASE WHEN coalesce(input_tokens, output_tokens) IS NOT NULL THEN {
        'input_tokens': input_tokens,
        'output_tokens': output_tokens
    } END AS token_usage,
    attempts, model, tool_defs, trajectory, state
FROM rollouts
"""
"""Rollouts in the form of ``results.jsonl`` (docs/reference/run-directory.md), with their run_id."""


class ExportFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
    DUCKDB = "duckdb"


@dataclass(frozen=True)
class ExportReport:
    target: Path
    runs: int
    rows: dict[str, int]
    bytes: int
    seconds: float


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
    """Writes runs to a target. Raises WarehouseError if the target exists and ``force`` is False.

    By default, the target's name decides the format, and a folder gets the tables runs, rollouts, attempts and
    examples. A DuckDB file always gets all tables.
    """
    started = time.monotonic()
    target = Path(target)
    chosen = chosen or Selection()
    output_format = output_format or (ExportFormat.DUCKDB if target.suffix in _DATABASES else ExportFormat.PARQUET)
    is_folder = output_format is not ExportFormat.DUCKDB
    names = _chosen_tables(tables, is_folder=is_folder)
    _check_target(target, store.path, is_folder=is_folder, force=force)
    runs = choose_runs(store, chosen)

    def write(look: Look) -> dict[str, int]:
        with (
            _written_beside(target) as beside,
            damage_named(store),
            explained(f"Cannot export to {str(target)!r}"),
            scratch_connection() as connection,
        ):
            source = ExportConnection(store, look(), connection)
            if not is_folder:
                with database_name(beside) as path:
                    return _write_database(source, path, runs, store.records(), progress)
            beside.mkdir()
            rows = _Files(source, beside, output_format).write(runs, names, progress)
            (beside / MANIFEST).write_bytes(_manifest(store, chosen, output_format, runs, rows))
            return rows

    rows = read_patiently(store, write)
    files = target.rglob("*") if target.is_dir() else [target]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return ExportReport(target, len(runs), rows, size, time.monotonic() - started)


class _Files:
    """The files of an export in a folder.

    - Parquet: ``{table}/env_id=…/model=…/{table}-0.parquet``, for ``read_parquet(…, hive_partitioning = true)``. The
      column ``rollouts.model``, the name that the server returned, is ``served_model``. Examples are in one folder.
    - CSV: ``{table}.csv`` with a header; maps, lists and JSON are JSON text.
    - JSON lines: ``{table}.jsonl``; rollouts as in ``results.jsonl`` with their ``run_id``.
    """

    def __init__(self, source: ExportConnection, folder: Path, output_format: ExportFormat) -> None:
        self._source, self._folder, self._format = source, folder, output_format

    def write(self, runs: Sequence[ExportedRun], tables: Sequence[str], progress: Progress) -> dict[str, int]:
        counts = dict.fromkeys(tables, 0)
        statements = {table: self._statement(table) for table in tables}
        place_of = _partition if self._format is ExportFormat.PARQUET else lambda _: ""
        places = groupby(sorted(runs, key=place_of), place_of)
        parts = [(place, part) for place, held in places for part in self._source.slices(held)]
        for done, (place, run_ids) in enumerate(parts, start=1):
            self._source.narrow(run_ids)
            for table in [table for table in tables if table != "examples"]:
                counts[table] += self._append(table, f"{statements[table]} ORDER BY {TABLES[table]}", place)
            progress(done, len(parts))
        if "examples" in tables:
            for condition in self._source.example_parts(runs, "example_hash"):
                statement = f"{statements['examples']} WHERE {condition} ORDER BY {TABLES['examples']}"
                counts["examples"] += self._append("examples", statement, "")
        return counts

    def _statement(self, table: str) -> str:
        if self._format is ExportFormat.PARQUET:
            return f"SELECT {_IN_FOLDERS.get(table, '*')} FROM {table}"  # noqa: S608 - own names
        if self._format is ExportFormat.JSONL and table == "rollouts":
            return _RESULTS
        columns = [(row[0], row[1]) for row in self._source.connection.execute(f"DESCRIBE {table}").fetchall()]
        if self._format is ExportFormat.CSV:
            nested = [name for name, kind in columns if kind.startswith(_NESTED) or kind.endswith("]")]
            texts = [f"to_json({name})::VARCHAR AS {name}" for name in nested]
        else:
            texts = [
                f"strftime({name}, '%Y-%m-%dT%H:%M:%S.%f+00:00') AS {name}"
                for name, kind in columns
                if kind == "TIMESTAMP WITH TIME ZONE"
            ]
        replaced = f" REPLACE ({', '.join(texts)})" if texts else ""
        return f"SELECT *{replaced} FROM {table}"  # noqa: S608 - own names

    def _append(self, table: str, statement: str, place: str) -> int:
        if self._format is ExportFormat.PARQUET:
            folder = self._folder / table / place
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{table}-{sum(1 for _ in folder.iterdir())}.parquet"
            return self._copy(statement, path, PARQUET_OPTIONS)
        path = self._folder / f"{table}.{self._format.value}"
        part = path.with_name(f".{path.name}.part")
        is_csv = self._format is ExportFormat.CSV
        rows = self._copy(statement, part, f"FORMAT csv, HEADER {not path.exists()}" if is_csv else "FORMAT json")
        with path.open("ab") as file, part.open("rb") as written:
            shutil.copyfileobj(written, file, 1 << 20)
        part.unlink()
        return rows

    def _copy(self, statement: str, path: Path, options: str) -> int:
        [(rows,)] = self._source.connection.execute(f"COPY ({statement}) TO {quoted(path)} ({options})").fetchall()
        return int(rows)


def _partition(run: ExportedRun) -> str:
    env_id, model = (_NO_VALUE if value is None else quote(value, safe=" ") for value in (run.env_id, run.model))
    return f"env_id={env_id}/model={model}"


def _write_database(
    source: ExportConnection, path: Path, runs: Sequence[ExportedRun], records: Records, progress: Progress
) -> dict[str, int]:
    connection = source.connection
    connection.execute(f"ATTACH {quoted(path)} AS target (STORAGE_VERSION '{STORAGE_VERSION}')")
    connection.execute("USE target; CREATE SCHEMA segments")
    define_records(connection, records)
    for kind in KINDS:
        connection.execute(f"CREATE TABLE segments.{kind} AS FROM memory.segments.{kind} LIMIT 0")
    connection.execute(views_script())
    connection.execute("USE memory")
    parts = list(source.slices(runs))
    for done, run_ids in enumerate(parts, start=1):
        source.narrow(run_ids)
        for kind in RUN_KINDS:
            connection.execute(f"INSERT INTO target.segments.{kind} FROM segments.{kind} ORDER BY {ORDER[kind]}")
        progress(done, len(parts))
    for condition in source.example_parts(runs, "content_id"):
        connection.execute(
            "INSERT INTO target.segments.examples "  # noqa: S608
            f"SELECT DISTINCT ON (content_id) * FROM segments.examples WHERE {condition} ORDER BY content_id"
        )
    counts = {
        kind: connection.execute(f"SELECT count(*) FROM target.segments.{kind}").fetchall()[0][0]  # noqa: S608
        for kind in KINDS
    }
    connection.execute("DETACH target")
    return counts


def _chosen_tables(tables: Sequence[str] | None, *, is_folder: bool) -> Sequence[str]:
    if tables is not None and not is_folder:
        raise WarehouseError("A DuckDB file has all tables: omit --tables.")
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


def _check_target(target: Path, warehouse: Path | None, *, is_folder: bool, force: bool) -> None:
    if warehouse is not None and target.absolute().is_relative_to(warehouse.absolute()):
        raise WarehouseError(f"Cannot export to {str(target)!r}: this path is inside the warehouse.")
    is_empty_folder = target.is_dir() and not any(target.iterdir())
    if not os.path.lexists(target) or (is_folder and is_empty_folder):
        return
    if not force:
        raise WarehouseError(f"{str(target)!r} exists already. Give another name, or add --force to replace it.")
    if is_folder and not (target / MANIFEST).is_file():
        raise WarehouseError(f"{str(target)!r} is not an export (it has no {MANIFEST}): --force does not replace it.")
    if not is_folder and not target.is_file():
        raise WarehouseError(f"{str(target)!r} is not a file: --force does not replace it.")


@contextmanager
def _written_beside(target: Path) -> Iterator[Path]:
    """Yields a temporary path, and moves the file or folder there to the target if the body succeeds."""
    mark = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    beside, aside = (target.parent / f".{target.name}.{mark}.{end}" for end in ("part", "old"))
    try:
        with file_errors(f"Cannot write {str(target)!r}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            yield beside
            if target.is_dir():
                target.rename(aside)
            beside.rename(target)
    finally:
        for path in (beside, aside, Path(f"{beside}.wal")):
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                path.unlink()
