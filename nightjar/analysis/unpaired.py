"""``find_unpaired``: the examples of two runs that have no pair, and why."""

from __future__ import annotations

from nightjar.analysis.records import Unpaired
from nightjar.warehouse import Warehouse

# The joins are by equality and meet at most one row, so the time is linear, also if all examples ask the same.
_UNPAIRED = """
WITH pairs AS (
    FROM paired([$a], [$b])
),
alone AS (
    SELECT run_id, example_hash
    FROM example_results([$a, $b])
    ANTI JOIN (
        SELECT $a AS run_id, hash_a AS example_hash FROM pairs UNION ALL SELECT $b, example_hash FROM pairs
    ) USING (run_id, example_hash)
),
known AS MATERIALIZED (
    FROM questions([$a, $b])
),
texts AS MATERIALIZED (
    SELECT DISTINCT run_id, unnest([asked, question]) AS text, expected FROM known
),
sought AS (
    SELECT run_id, example_hash, example_id, asked, expected, unnest([asked, question]) AS text
    FROM known SEMI JOIN alone USING (run_id, example_hash)
),
beside AS (
    SELECT
        sought.run_id,
        sought.example_hash,
        any_value(sought.example_id) AS example_id,
        any_value(sought.asked) IS NULL AS is_unknown,
        count(other.text) > 0 AS is_asked,
        count(same.text) > 0 AS is_same
    FROM sought
    LEFT JOIN (SELECT DISTINCT run_id, text FROM texts) AS other
        ON other.text = sought.text AND other.run_id <> sought.run_id
    LEFT JOIN texts AS same
        ON same.text = sought.text AND same.expected = sought.expected AND same.run_id <> sought.run_id
    GROUP BY sought.run_id, sought.example_hash
)
SELECT
    CASE run_id WHEN $a THEN 'baseline' ELSE 'candidate' END AS side,
    CASE
        WHEN is_unknown THEN 'no prompt'
        WHEN is_same THEN 'other content'
        WHEN is_asked THEN 'other answer'
        ELSE 'other question'
    END AS reason,
    count(*) AS count,
    list(example_id ORDER BY example_id)[:$shown] AS first
FROM beside
GROUP BY ALL
ORDER BY side, count DESC, reason
"""
_SHOWN = 5


def find_unpaired(warehouse: Warehouse, a: str, b: str) -> list[Unpaired]:
    """Returns the examples that only one of two runs has, by side and reason; the most frequent reason comes first."""
    found = warehouse.query(_UNPAIRED, {"a": a, "b": b, "shown": _SHOWN})
    return [Unpaired(*row) for row in found.rows]
