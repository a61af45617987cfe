"""Looks at the rows of a warehouse: does what is told of a run agree with its rollouts, and is each there once?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import connect_scratch, explained, reason
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

_VERSIONS = "SELECT run_id, version, run_dir FROM segments.runs"


@dataclass(frozen=True)
class Totals:
    """How much a warehouse holds that counts; contents of examples, not copies of them."""

    runs: int = 0
    rollouts: int = 0
    attempts: int = 0
    examples: int = 0


@dataclass(frozen=True)
class Contradiction:
    """What does not agree about a run.

    Attributes:
        run_id: the run.
        what: a sentence about it.
        run_dir: where it was written; None where that is not known.
        is_of_description: whether it is ``segment.json`` that is wrong.
    """

    run_id: str
    what: str
    run_dir: str | None
    is_of_description: bool = False


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
        try:
            [totals] = connection.execute(_TOTALS).fetchall()
            return Totals(*totals), list(_contradictions(connection, catalog))
        except UnicodeDecodeError as error:
            raise WarehouseError(f"Cannot read the warehouse {folder}: {reason(error)}") from error


def versions_in(folder: Folder, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns which versions of which runs the files of segments hold.

    Args:
        folder: the warehouse.
        names: of segments whose files are whole.

    Raises:
        WarehouseError: a file cannot be read all the same.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    files = [folder.file(name, "runs") for name in names]
    with explained(f"Cannot read the warehouse {folder}"), closing(duckdb.connect(":memory:")) as connection:
        if files:
            query = "SELECT filename, run_id, version FROM read_parquet($1, hive_partitioning = false, filename = true)"
            try:
                rows = connection.execute(query, [files]).fetchall()
            except UnicodeDecodeError as error:
                raise WarehouseError(f"Cannot read the warehouse {folder}: {reason(error)}") from error
            for file, run_id, version in rows:
                found[Path(file).parent.name][run_id] = version
    return found


def _contradictions(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> Iterator[Contradiction]:
    found = {run_id: (version, run_dir) for run_id, version, run_dir in connection.execute(_VERSIONS).fetchall()}
    unknown = (None, None)
    for statement in (_TWICE, _WITHOUT_CONTENT, _MISCOUNTED, _HOMELESS):
        for run_id, what in connection.execute(statement).fetchall():
            yield Contradiction(run_id, what, found.get(run_id, unknown)[1])
    for run_id, segment in sorted(catalog.holders.items()):
        version, run_dir = found.get(run_id, unknown)
        if version != segment.versions[run_id]:
            what = f"segment.json of {segment.segment_id!r} says otherwise than runs.parquet"
            yield Contradiction(run_id, what, run_dir, is_of_description=True)
