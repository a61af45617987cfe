"""Reads the files of a run into temporary tables; DuckDB parses each file once."""

from __future__ import annotations

import glob
from collections.abc import Collection
from pathlib import Path

import duckdb
import orjson

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained
from nightjar.warehouse.storage.tables import columns
from nightjar.warehouse.writing.run_files import JsonFile, RunFiles, gathered

_ERROR = "STRUCT(error VARCHAR, message VARCHAR, phase VARCHAR, error_chain_repr VARCHAR, traceback VARCHAR)"
_USAGE = "STRUCT(input_tokens BIGINT, output_tokens BIGINT)"

_COMPUTED = {
    *("version", "env_commit", "input_tokens", "output_tokens", "nightjar_version", "nightjar_commit", "run_dir"),
    *("metadata", "config", "env_hash", "scoring_hash", "protocol"),
    *("reward_examples", "lowest_reward", "highest_reward"),
}
"""The columns of ``runs`` that are not fields of ``metadata.json``; ``publish.sql`` computes these columns."""


def _types(table: str, names: Collection[str]) -> dict[str, str]:
    return {column.name: column.sql_type for column in columns()[table] if column.name in names}


_RUN_FIELDS = {
    **_types("runs", {column.name for column in columns()["runs"]} - _COMPUTED),
    "usage": _USAGE,
    "api_client_type": "VARCHAR",
}

_RESULT_FIELDS = {
    **_types("rollouts", ("example_id", "rollout_index", "example_hash", "reward", "advantage", "metrics", "attempts")),
    **_types("rollouts", ("stop_condition", "is_completed", "is_truncated", "model", "completion")),
    **_types("examples", ("task", "prompt", "answer", "info", "tool_defs")),
    "error": _ERROR,
    "timing": "STRUCT(generation_ms DOUBLE, scoring_ms DOUBLE, total_ms DOUBLE)",
    "token_usage": _USAGE,
}
"""The fields of a line of ``results.jsonl`` with their types; a missing field is NULL."""

_ATTEMPT_FIELDS = {
    **_types("attempts", ("example_id", "rollout_index", "attempt", "generation_ms")),
    "finished_at": "DOUBLE",
    "error": _ERROR,
    "token_usage": _USAGE,
    "state": "STRUCT(trajectory JSON)",
}

_SMALLEST_BUFFER_BYTES = 1 << 20
"""Every thread allocates twice this size. DuckDB's default of 16 MB would cost more time than the parsing."""

_STAGE = """
CREATE TEMP TABLE {table} AS SELECT {selection} FROM read_json(
    getvariable('file'), format = '{layout}', columns = getvariable('fields'),
    maximum_object_size = getvariable('longest'), hive_partitioning = false
)
"""

_KEEP_LAST_LINES = """
DELETE FROM staged_results WHERE rowid NOT IN (
    SELECT max(rowid) FROM staged_results GROUP BY example_id, rollout_index
)
"""

_NAMELESS = "SELECT count(*) FROM {table} WHERE example_id IS NULL OR rollout_index IS NULL"


def stage_run(connection: duckdb.DuckDBPyConnection, files: RunFiles, scratch: Path) -> None:
    _stage_metadata(connection, files, scratch)
    named = dict.fromkeys(files.metadata.get("state_columns") or ())
    results, extra, state = files.results, [name for name in named if name not in _RESULT_FIELDS], "state"
    if _are_columns(extra):
        pairs = ", ".join(f"{_quoted(name, chr(39))}, {_quoted(name, chr(34))}" for name in extra)
        state = f"{f'json_object({pairs})' if extra else 'NULL::JSON'} AS state"
    else:
        results, extra = gathered(results, _RESULT_FIELDS, extra, scratch), ["state"]
    fields = _RESULT_FIELDS | dict.fromkeys(extra, "JSON")
    _stage(connection, "staged_results", ", ".join([*_RESULT_FIELDS, state]), results, fields, files.run_dir)
    if not files.has_one_line_per_rollout:
        connection.execute(_KEEP_LAST_LINES)
    _stage(connection, "staged_attempts", "*", files.attempts, _ATTEMPT_FIELDS, files.run_dir)


def _are_columns(names: Collection[str]) -> bool:
    distinct = {name.casefold() for name in (*_RESULT_FIELDS, *names)}
    return all(names) and len(distinct) == len(_RESULT_FIELDS) + len(names)


def _stage_metadata(connection: duckdb.DuckDBPyConnection, files: RunFiles, scratch: Path) -> None:
    text = orjson.dumps(files.metadata, option=orjson.OPT_SORT_KEYS)  # so that equal settings have equal text
    copy = scratch / "metadata.json"
    copy.write_bytes(text)
    with explained(f"Cannot read {files.run_dir / 'metadata.json'}"):
        _point_at(connection, copy, _RUN_FIELDS, len(text))
        connection.execute(_STAGE.format(table="staged_run", selection="*", layout="unstructured"))


def _stage(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    selection: str,
    file: JsonFile,
    fields: dict[str, str],
    run_dir: Path,
) -> None:
    path = run_dir / file.path.name
    with explained(f"Cannot read {path}"):
        _point_at(connection, file.path, fields, file.longest_bytes)
        connection.execute(_STAGE.format(table=table, selection=selection, layout="newline_delimited"))
    [(nameless,)] = connection.execute(_NAMELESS.format(table=table)).fetchall()
    if nameless:
        raise WarehouseError(f"Cannot read {path}: a line without example_id or rollout_index.")


def _point_at(connection: duckdb.DuckDBPyConnection, file: Path, fields: dict[str, str], longest_bytes: int) -> None:
    """Sets the variables of ``_STAGE``; wildcards in the path are escaped."""
    set_variable(connection, "file", glob.escape(str(file)))
    set_variable(connection, "fields", fields)
    set_variable(connection, "longest", max(longest_bytes + 1, _SMALLEST_BUFFER_BYTES))


def set_variable(connection: duckdb.DuckDBPyConnection, name: str, value: object) -> None:
    connection.execute(f"SET VARIABLE {name} = ?", [value])


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote
