"""Writes an export as one DuckDB file with the tables, and the views that build on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nightjar.warehouse.database import STORAGE_VERSION, quoted
from nightjar.warehouse.export.runs import ExportConnection, ExportedRun
from nightjar.warehouse.reading.relations import define_prices, views_script
from nightjar.warehouse.storage.prices import Price
from nightjar.warehouse.storage.segments import KINDS
from nightjar.warehouse.writing.bulk import Progress

_ORDER = {
    "runs": "run_id",
    "rollouts": "run_id, example_id, rollout_index",
    "attempts": "run_id, finished_at",
}


def write_database(
    source: ExportConnection, path: Path, runs: Sequence[ExportedRun], prices: Sequence[Price], progress: Progress
) -> dict[str, int]:
    """Writes ``runs``, ``rollouts``, ``attempts``, ``examples`` and ``prices``, and returns how many rows each has."""
    connection = source.connection
    connection.execute(f"ATTACH {quoted(path)} AS target (STORAGE_VERSION '{STORAGE_VERSION}')")
    connection.execute("USE target; CREATE SCHEMA segments")
    define_prices(connection, prices)
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
