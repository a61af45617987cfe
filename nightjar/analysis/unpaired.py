"""``find_unpaired``: the examples of two runs that have no pair, and why."""

from __future__ import annotations

from nightjar.analysis.records import Unpaired
from nightjar.warehouse import Warehouse

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
texts AS (
    SELECT DISTINCT run_id, unnest([asked, question]) AS text, expected FROM known
),
beside AS (
    SELECT
        known.run_id,
        known.example_hash,
        any_value(known.example_id) AS example_id,
        any_value(known.asked) IS NULL AS is_unknown,
        count(other.text) > 0 AS is_asked,
        coalesce(bool_or(other.expected = known.expected), false) AS is_same
    FROM known
    SEMI JOIN alone USING (run_id, example_hash)
    LEFT JOIN texts AS other
        ON other.run_id <> known.run_id AND (other.text = known.question OR other.text = known.asked)
    GROUP BY known.run_id, known.example_hash
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
