"""Looks at the rows of a warehouse: does what is told of a run agree with its rollouts, and is each there once?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from nightjar.warehouse.database import connect_scratch, explained
from nightjar.warehouse.reading.relations import define
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import Catalog

_TOTALS = """
SELECT
    (SELECT count(*) FROM segments.runs),
    (SELECT count(*) FROM segments.rollouts),
    (SELECT count(*) FROM segments.attempts),
    (SELECT count(DISTINCT content_id) FROM segments.examples)
"""

_TWICE = """
SELECT run_id, count(*) || ' rollouts are there several times'
FROM (
    SELECT run_id FROM segments.rollouts
    GROUP BY run_id, example_id, rollout_index HAVING count(*) > 1
)
GROUP BY run_id ORDER BY run_id
"""

_WITHOUT_CONTENT = """
SELECT run_id, count(*) || ' rollouts have lost the content of their example'
FROM segments.rollouts ANTI JOIN segments.examples USING (content_id)
GROUP BY run_id ORDER BY run_id
"""

_MISCOUNTED = """
SELECT run_id, 'its aggregates are of ' || (scored + failed) || ' rollouts, but it has ' || coalesce(found, 0)
FROM segments.runs
LEFT JOIN (SELECT run_id, count(*) AS found FROM segments.rollouts GROUP BY run_id) USING (run_id)
WHERE status <> 'running' AND scored + failed <> coalesce(found, 0)
ORDER BY run_id
"""

_HOMELESS = """
SELECT run_id, count(*) || ' ' || kind || ' of a run that is not there'
FROM (
    SELECT run_id, 'rollouts' AS kind FROM segments.rollouts
    UNION ALL SELECT run_id, 'attempts' FROM segments.attempts
) ANTI JOIN segments.runs USING (run_id)
GROUP BY run_id, kind ORDER BY run_id
"""

_VERSIONS = "SELECT run_id, version FROM segments.runs"


@dataclass(frozen=True)
class Totals:
    """How much a warehouse holds that counts; contents of examples, not copies of them."""

    runs: int = 0
    rollouts: int = 0
    attempts: int = 0
    examples: int = 0


@dataclass(frozen=True)
class Contradiction:
    """What does not agree about a run."""

    run_id: str
    what: str


def examine(folder: Folder, catalog: Catalog) -> tuple[Totals, list[Contradiction]]:
    """Returns how much there is, and what does not agree.

    Args:
        folder: the warehouse.
        catalog: segments whose files are whole.

    Raises:
        WarehouseError: a file cannot be read all the same.
    """
    with (
        TemporaryDirectory(prefix="nightjar-") as spill,
        explained(f"Cannot read the warehouse {folder}"),
        closing(connect_scratch(Path(spill), memory_limit="2GB")) as connection,
    ):
        folder.prepare(connection)
        define(connection, catalog, folder.file, [])
        [totals] = connection.execute(_TOTALS).fetchall()
        return Totals(*totals), list(_contradictions(connection, catalog))


def _contradictions(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> Iterator[Contradiction]:
    for statement in (_TWICE, _WITHOUT_CONTENT, _MISCOUNTED, _HOMELESS):
        for run_id, what in connection.execute(statement).fetchall():
            yield Contradiction(run_id, what)
    found = dict(connection.execute(_VERSIONS).fetchall())
    for run_id, segment in sorted(catalog.holders.items()):
        if found.get(run_id) != segment.versions[run_id]:
            yield Contradiction(run_id, f"segment.json of {segment.segment_id!r} says otherwise than runs.parquet")
