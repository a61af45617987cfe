"""Looks at the rows of a warehouse: does what is told of a run agree with its rollouts, and is each there once?"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from nightjar.scratch import scratch_folder
from nightjar.warehouse.database import connect_scratch, explained
from nightjar.warehouse.reading.relations import define
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import Catalog
from nightjar.warehouse.storage.store import Records

_TOTALS = """
SELECT
    (SELECT count(*) FROM segments.runs),
    (SELECT count(*) FROM segments.rollouts),
    (SELECT count(*) FROM segments.attempts),
    (SELECT count(DISTINCT content_id) FROM segments.examples)
"""

_CONTRADICTIONS = """
SELECT run_id, what, run_dir FROM (
SELECT run_id, count(*) || ' rollouts are there several times' AS what FROM (
    SELECT run_id FROM segments.rollouts GROUP BY run_id, example_id, rollout_index HAVING count(*) > 1
) GROUP BY run_id
UNION ALL
SELECT run_id, count(*) || ' rollouts have lost the content of their example'
FROM segments.rollouts ANTI JOIN segments.examples USING (content_id) GROUP BY run_id
UNION ALL
SELECT run_id, 'its aggregates are of ' || (scored + failed) || ' rollouts, but it has ' || coalesce(found, 0)
FROM segments.runs
LEFT JOIN (SELECT run_id, count(*) AS found FROM segments.rollouts GROUP BY run_id) USING (run_id)
WHERE status <> 'running' AND scored + failed <> coalesce(found, 0)
UNION ALL
SELECT run_id, count(*) || ' ' || kind || ' of a run that is not there' FROM (
    SELECT run_id, 'rollouts' AS kind FROM segments.rollouts UNION ALL SELECT run_id, 'attempts' FROM segments.attempts
) ANTI JOIN segments.runs USING (run_id) GROUP BY run_id, kind
) LEFT JOIN segments.runs USING (run_id)
ORDER BY ALL
"""


@dataclass(frozen=True)
class Totals:
    """How much a warehouse holds that counts; contents of examples, not copies of them."""

    runs: int = 0
    rollouts: int = 0
    attempts: int = 0
    examples: int = 0


def examine_rows(folder: Folder, catalog: Catalog) -> tuple[Totals, list[tuple[str, str, str | None]]]:
    """Returns how much there is, and what does not agree: run_id, a sentence, and where the run was written.

    Args:
        folder: the warehouse.
        catalog: segments whose files are whole.

    Raises:
        WarehouseError: a file cannot be read all the same.
    """
    with (
        scratch_folder() as spill,
        explained(f"Cannot read the warehouse {folder}"),
        closing(connect_scratch(spill, memory_limit="2GB")) as connection,
    ):
        define(connection, catalog, folder.file, Records())
        [totals] = connection.execute(_TOTALS).fetchall()
        return Totals(*totals), connection.execute(_CONTRADICTIONS).fetchall()
