"""``compare_run``: a run beside others of the same kind, over the examples that they have scored, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightjar.stats.estimates import clustered_mean
from nightjar.stats.exchange import chance_of_so_low
from nightjar.warehouse import Warehouse

_PAIRS = """
WITH rewards AS (
    SELECT run_id, example_hash, avg(reward) AS reward
    FROM rollouts
    WHERE reward IS NOT NULL AND run_id IN (SELECT unnest($before || [$after]))
    GROUP BY run_id, example_hash
)
SELECT after.reward, list(before.reward ORDER BY before.run_id)
FROM rewards AS after JOIN rewards AS before USING (example_hash)
WHERE after.run_id = $after AND before.run_id != $after
GROUP BY example_hash, after.reward
ORDER BY example_hash
"""
_UNPAIRED = """
WITH scored AS (
    SELECT example_hash, count(DISTINCT run_id) AS runs
    FROM rollouts
    WHERE reward IS NOT NULL AND example_hash IS NOT NULL AND run_id IN ($before, $after)
    GROUP BY example_hash
)
SELECT count(*) FROM scored WHERE runs = 1
"""
_SETTINGS = """
SELECT
    run_id, model, base_url AS endpoint,
    env_args AS "environment's arguments", extra_env_kwargs AS "environment's settings",
    sampling_args AS sampling, dataset_fingerprint AS dataset, rollouts_per_example AS "rollouts per example",
    env_hash AS "environment's code", scoring_hash AS scoring
FROM runs WHERE run_id IN (SELECT unnest($run_ids))
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
    rows = warehouse.query(_PAIRS, {"before": list(others), "after": run_id}).rows
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
