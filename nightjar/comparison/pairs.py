"""``compare_run``: a run beside others of the same kind, over the examples that they have scored, too.

Which example of one run is which of another is said once, in SQL: ``paired_sides``, in the warehouse's ``views.sql``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightjar.stats.estimates import clustered_mean
from nightjar.stats.exchange import chance_of_so_low
from nightjar.warehouse import Warehouse

_REWARDS = """
SELECT value_b, values_a
FROM paired($before, [$after])
WHERE difference IS NOT NULL
ORDER BY example_hash
"""
_UNPAIRED = """
SELECT count(*) FROM (
    SELECT example_hash
    FROM example_results([$before, $after])
    WHERE scored > 0
    GROUP BY example_hash
    HAVING count(*) = 1
)
"""
_SETTINGS = """
SELECT
    run_id, model, base_url AS endpoint,
    env_args AS "environment's arguments", extra_env_kwargs AS "environment's settings",
    sampling_args AS sampling, dataset_fingerprint AS dataset, rollouts_per_example AS "rollouts per example",
    env_hash AS "environment's code", scoring_hash AS scoring
FROM runs WHERE list_contains($run_ids, run_id)
"""


@dataclass(frozen=True)
class Compared:
    """A run beside others, paired by the content of examples; of an example's rollouts in a run their mean counts.

    Attributes:
        pairs: examples that it and any of the others have scored.
        difference: of the mean reward over these, it minus the mean of the others; None without pairs.
        stderr: standard error of the difference; None with fewer than two pairs.
        p_worse, p_better: chance of a difference as low, or as high, as this one where nothing has changed.
    """

    pairs: int
    difference: float | None
    stderr: float | None
    p_worse: float
    p_better: float


def compare_run(warehouse: Warehouse, run_id: str, others: Sequence[str]) -> Compared:
    """Compares a run with others.

    Args:
        warehouse: has them all.
        run_id: of the run.
        others: their ids.

    Raises:
        WarehouseError: it cannot be asked.
    """
    rows = warehouse.query(_REWARDS, {"before": [one for one in others if one != run_id], "after": run_id}).rows
    groups = [[after, *before] for after, before in rows]
    estimate = clustered_mean([[after - sum(before) / len(before)] for after, *before in groups])
    turned_round = [[-value for value in group] for group in groups]
    p_worse, p_better = chance_of_so_low(groups), chance_of_so_low(turned_round)
    return Compared(len(groups), estimate.mean, estimate.stderr, p_worse, p_better)


def unpaired(warehouse: Warehouse, before: str, after: str) -> int:
    """Returns how many examples one of two runs has scored and the other has not."""
    [(count,)] = warehouse.query(_UNPAIRED, {"before": before, "after": after}).rows
    return int(count)


def settings_of(warehouse: Warehouse, run_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Returns run to what its results depend on, by what that is called."""
    found = warehouse.query(_SETTINGS, {"run_ids": list(run_ids)})
    return {row[0]: dict(zip(found.columns[1:], row[1:], strict=True)) for row in found.rows}
