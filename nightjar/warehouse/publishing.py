"""Puts a run directory into the warehouse.

DuckDB parses the files once, into temporary tables (:func:`stage_run`); this needs no lock. Then
the run's rows are replaced in one transaction (:func:`replace_run`).
"""

from __future__ import annotations

import glob
from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained, transaction
from nightjar.warehouse.run_files import RunMetadata, read_metadata, whole_results

_RUN_FIELDS = {
    "run_id": "VARCHAR",
    "status": "VARCHAR",
    "env_id": "VARCHAR",
    "env_version": "VARCHAR",
    "env_args": "JSON",
    "model": "VARCHAR",
    "base_url": "VARCHAR",
    "sampling_args": "JSON",
    "num_examples": "BIGINT",
    "rollouts_per_example": "BIGINT",
    "dataset_fingerprint": "VARCHAR",
    "started_at": "TIMESTAMPTZ",
    "finished_at": "TIMESTAMPTZ",
    "time_ms": "DOUBLE",
    "rollouts": "BIGINT",
    "scored": "BIGINT",
    "failed": "BIGINT",
    "coverage": "DOUBLE",
    "avg_reward": "DOUBLE",
    "stderr": "DOUBLE",
    "avg_error": "DOUBLE",
    "avg_metrics": "MAP(VARCHAR, DOUBLE)",
    "pass_at_k": "MAP(VARCHAR, DOUBLE)",
    "pass_all_k": "MAP(VARCHAR, DOUBLE)",
    "pass_threshold": "DOUBLE",
    "usage": "STRUCT(input_tokens BIGINT, output_tokens BIGINT)",
    "version_info": "JSON",
    "flow_run_id": "VARCHAR",
}
"""The fields of ``metadata.json`` that are columns, and their types."""

_ROLLOUT_FIELDS = {
    "example_id": "BIGINT",
    "rollout_index": "INTEGER",
    "example_hash": "VARCHAR",
    "reward": "DOUBLE",
    "advantage": "DOUBLE",
    "metrics": "MAP(VARCHAR, DOUBLE)",
    "error": ("STRUCT(error VARCHAR, message VARCHAR, phase VARCHAR, error_chain_repr VARCHAR, traceback VARCHAR)"),
    "timing": "STRUCT(generation_ms DOUBLE, scoring_ms DOUBLE, total_ms DOUBLE)",
    "is_completed": "BOOLEAN",
    "is_truncated": "BOOLEAN",
    "stop_condition": "VARCHAR",
    "token_usage": "STRUCT(input_tokens BIGINT, output_tokens BIGINT)",
    "attempts": "INTEGER",
    "model": "VARCHAR",
    "task": "VARCHAR",
    "answer": "VARCHAR",
    "prompt": "JSON",
    "completion": "JSON",
    "info": "JSON",
    "tool_defs": "JSON",
}
"""The fields of a line of ``results.jsonl``, and their types. A field that is missing is NULL."""

_SMALLEST_BUFFER_BYTES = 1 << 20
"""Every thread is allotted twice this; DuckDB's default of 16 MB costs more than the parsing."""

_STAGE = """
CREATE TEMP TABLE {table} AS SELECT {selection} FROM read_json(
    getvariable('file'), format = '{layout}', columns = getvariable('fields'),
    maximum_object_size = getvariable('longest'), hive_partitioning = false
)
"""

_KEEP_LAST_LINES = """
DELETE FROM staged_rollouts WHERE rowid NOT IN (
    SELECT max(rowid) FROM staged_rollouts GROUP BY example_id, rollout_index
)
"""

_COUNT = """
SELECT
    count(*),
    coalesce(sum(cardinality(metrics)), 0),
    count(error),
    count(*) FILTER (example_id IS NULL OR rollout_index IS NULL)
FROM staged_rollouts
"""


@dataclass(frozen=True)
class PublishReport:
    """What a publish put into the warehouse: the run, and how many rows about it."""

    run_id: str
    rollouts: int
    metrics: int
    errors: int


def stage_run(connection: duckdb.DuckDBPyConnection, run_dir: Path) -> PublishReport:
    """Reads a run directory into temporary tables of the connection.

    Returns:
        The counts of what :func:`replace_run` is going to publish.

    Raises:
        WarehouseError: a file is missing or damaged, or a value has the wrong type.
    """
    metadata = read_metadata(run_dir)
    _set_variable(connection, "run_id", metadata.run_id)
    _set_variable(connection, "run_dir", str(run_dir.absolute()))
    _set_variable(connection, "metadata", metadata.text)
    _stage_metadata(connection, metadata)
    _stage_results(connection, run_dir, metadata)
    return _report(connection, run_dir, metadata)


def replace_run(connection: duckdb.DuckDBPyConnection) -> None:
    """Replaces the staged run's rows in every table, in one transaction."""
    script = resources.files(__package__) / "queries" / "publish.sql"
    with transaction(connection):
        connection.execute(script.read_text("utf-8"))


def _stage_metadata(connection: duckdb.DuckDBPyConnection, metadata: RunMetadata) -> None:
    statement = _STAGE.format(table="staged_run", selection="*", layout="unstructured")
    with explained(f"Cannot read {metadata.path}"):
        _point_at(connection, metadata.path, _RUN_FIELDS, len(metadata.text.encode()))
        connection.execute(statement)


def _stage_results(connection: duckdb.DuckDBPyConnection, run_dir: Path, metadata: RunMetadata) -> None:
    extra = {name: "JSON" for name in metadata.state_columns if name.lower() not in _ROLLOUT_FIELDS}
    statement = _STAGE.format(
        table="staged_rollouts",
        selection=", ".join([*_ROLLOUT_FIELDS, f"{_state(extra)} AS state"]),
        layout="newline_delimited",
    )
    with TemporaryDirectory() as scratch, explained(f"Cannot read {run_dir / 'results.jsonl'}"):
        lines = whole_results(run_dir, metadata, Path(scratch))
        _point_at(connection, lines.path, _ROLLOUT_FIELDS | extra, lines.longest_bytes)
        connection.execute(statement)
        connection.execute(_KEEP_LAST_LINES)


def _state(columns: Collection[str]) -> str:
    """An SQL expression: one JSON object of the state's own columns, NULL without any."""
    pairs = (f"{_quoted(name, chr(39))}, {_quoted(name, chr(34))}" for name in columns)
    return f"json_object({', '.join(pairs)})" if columns else "NULL::JSON"


def _report(connection: duckdb.DuckDBPyConnection, run_dir: Path, metadata: RunMetadata) -> PublishReport:
    rollouts, metrics, errors, nameless = connection.execute(_COUNT).fetchall()[0]
    if nameless:
        raise WarehouseError(f"Cannot read {run_dir / 'results.jsonl'}: a line without example_id or rollout_index.")
    return PublishReport(metadata.run_id, rollouts, int(metrics), errors)


def _point_at(connection: duckdb.DuckDBPyConnection, file: Path, fields: dict[str, str], longest_bytes: int) -> None:
    """Sets what :data:`_STAGE` reads; ``*``, ``?`` and ``[`` in a path are no wildcards."""
    _set_variable(connection, "file", glob.escape(str(file)))
    _set_variable(connection, "fields", fields)
    _set_variable(connection, "longest", max(longest_bytes + 1, _SMALLEST_BUFFER_BYTES))


def _set_variable(connection: duckdb.DuckDBPyConnection, name: str, value: object) -> None:
    connection.execute(f"SET VARIABLE {name} = ?", [value])


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote
