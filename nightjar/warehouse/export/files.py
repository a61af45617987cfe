"""Writes tables of an export as files: Parquet in folders of environment and model, CSV, or JSON lines."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from nightjar.warehouse.database import quoted
from nightjar.warehouse.export.runs import ExportConnection, ExportedRun
from nightjar.warehouse.writing.bulk import Progress
from nightjar.warehouse.writing.publishing import PARQUET_OPTIONS

TABLES = {
    "runs": "run_id",
    "rollouts": "run_id, example_id, rollout_index",
    "attempts": "run_id, example_id, rollout_index, attempt",
    "examples": "example_hash",
    "metrics": "run_id, example_id, rollout_index, name",
    "errors": "run_id, example_id, rollout_index",
}
"""The tables that can be exported, and the order of their rows."""

_NOWHERE = "__HIVE_DEFAULT_PARTITION__"

Counts = dict[str, int]
"""Table to number of rows."""


def write_parquet(
    source: ExportConnection, folder: Path, runs: Sequence[ExportedRun], tables: Sequence[str], progress: Progress
) -> Counts:
    """Writes ``{table}/env_id=…/model=…/{table}-0.parquet``, which ``read_parquet(…, hive_partitioning = true)`` reads.

    The names of the folders are the columns env_id and model. The model that a server answered with, which ``rollouts``
    has under that name, is ``served_model``. Examples are of no model: they are in one folder.
    """
    counts: Counts = dict.fromkeys(tables, 0)
    parts = [(place, part) for place, held in _partitions(runs).items() for part in source.slices(held)]
    for done, (place, run_ids) in enumerate(parts, start=1):
        source.narrow(run_ids)
        for table in _of_runs(tables):
            statement = f"{_for_parquet(source, table)} ORDER BY {TABLES[table]}"
            counts[table] += _write_parquet(source, folder / table / place, table, statement)
        progress(done, len(parts))
    for statement in _example_statements(source, runs, tables, "SELECT * FROM examples"):
        counts["examples"] += _write_parquet(source, folder / "examples", "examples", statement)
    return counts


def write_csv(
    source: ExportConnection, folder: Path, runs: Sequence[ExportedRun], tables: Sequence[str], progress: Progress
) -> Counts:
    """Writes ``{table}.csv``, with a header; maps, lists and JSON are JSON text."""
    statements = {table: _for_csv(source, table) for table in tables}
    return _write_lines(source, folder, runs, statements, "csv", progress)


def write_jsonl(
    source: ExportConnection, folder: Path, runs: Sequence[ExportedRun], tables: Sequence[str], progress: Progress
) -> Counts:
    """Writes ``{table}.jsonl``; rollouts are as in ``results.jsonl``, with their ``run_id``."""
    statements = {table: _for_jsonl(source, table) for table in tables}
    return _write_lines(source, folder, runs, statements, "jsonl", progress)


def _write_lines(
    source: ExportConnection,
    folder: Path,
    runs: Sequence[ExportedRun],
    statements: Mapping[str, str],
    suffix: str,
    progress: Progress,
) -> Counts:
    """Writes one text file a table, part by part; a table's statement gives what is selected of it."""
    counts: Counts = dict.fromkeys(statements, 0)
    parts = list(source.slices(runs))
    for done, run_ids in enumerate(parts, start=1):
        source.narrow(run_ids)
        for table in _of_runs(list(statements)):
            statement = f"{statements[table]} ORDER BY {TABLES[table]}"
            counts[table] += _append(source, statement, folder / f"{table}.{suffix}")
        progress(done, len(parts))
    for statement in _example_statements(source, runs, list(statements), statements.get("examples", "")):
        counts["examples"] += _append(source, statement, folder / f"examples.{suffix}")
    return counts


def _append(source: ExportConnection, statement: str, path: Path) -> int:
    part = path.with_name(f".{path.name}.part")
    options = f"FORMAT csv, HEADER {not path.exists()}" if path.suffix == ".csv" else "FORMAT json"
    rows = _copy(source, statement, part, options)
    with path.open("ab") as file, part.open("rb") as written:
        shutil.copyfileobj(written, file, 1 << 20)
    part.unlink()
    return rows


def _of_runs(tables: Sequence[str]) -> list[str]:
    return [table for table in tables if table != "examples"]


def _example_statements(
    source: ExportConnection, runs: Sequence[ExportedRun], tables: Sequence[str], statement: str
) -> Iterator[str]:
    if "examples" in tables:
        for condition in source.example_parts(runs, "example_hash"):
            yield f"{statement} WHERE {condition} ORDER BY {TABLES['examples']}"


def _partitions(runs: Sequence[ExportedRun]) -> dict[str, list[ExportedRun]]:
    """Folder to the runs in it."""
    places: dict[str, list[ExportedRun]] = defaultdict(list)
    for run in runs:
        places[f"env_id={_folder_name(run.env_id)}/model={_folder_name(run.model)}"].append(run)
    return dict(sorted(places.items()))


def _folder_name(value: str | None) -> str:
    return _NOWHERE if value is None else quote(value, safe=" ")


def _for_parquet(source: ExportConnection, table: str) -> str:
    columns = [name for name, _ in _columns(source, table)]
    renamed = "model AS served_model" if table == "rollouts" else None
    kept = [renamed if name == "model" else name for name in columns if name != "env_id"]
    return f"SELECT {', '.join(name for name in kept if name)} FROM {table}"  # noqa: S608 - our own names


def _for_csv(source: ExportConnection, table: str) -> str:
    texts = [f"to_json({name})::VARCHAR AS {name}" for name, kind in _columns(source, table) if _is_nested(kind)]
    replaced = f" REPLACE ({', '.join(texts)})" if texts else ""
    return f"SELECT *{replaced} FROM {table}"  # noqa: S608 - our own names


def _for_jsonl(source: ExportConnection, table: str) -> str:
    if table == "rollouts":
        return (resources.files(__package__) / "rollouts.sql").read_text("utf-8")
    moments = [
        f"strftime({name}, '%Y-%m-%dT%H:%M:%S.%f+00:00') AS {name}"
        for name, kind in _columns(source, table)
        if kind == "TIMESTAMP WITH TIME ZONE"
    ]
    replaced = f" REPLACE ({', '.join(moments)})" if moments else ""
    return f"SELECT *{replaced} FROM {table}"  # noqa: S608 - our own names


def _is_nested(kind: str) -> bool:
    return kind.startswith(("MAP", "STRUCT", "JSON")) or kind.endswith("]")


def _columns(source: ExportConnection, table: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in source.connection.execute(f"DESCRIBE {table}").fetchall()]


def _write_parquet(source: ExportConnection, folder: Path, table: str, statement: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}-{sum(1 for _ in folder.iterdir())}.parquet"
    return _copy(source, statement, path, PARQUET_OPTIONS)


def _copy(source: ExportConnection, statement: str, path: Path, options: str) -> int:
    [(rows,)] = source.connection.execute(f"COPY ({statement}) TO {quoted(path)} ({options})").fetchall()
    return int(rows)
