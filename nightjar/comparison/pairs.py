"""``pair_runs``: two runs over the examples that both have scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nightjar.stats.estimates import clustered_mean
from nightjar.stats.sign_flips import chance_of_so_low
from nightjar.warehouse import Warehouse

_PAIRS = "SELECT difference FROM pairs($before, $after)"
_UNPAIRED = """
SELECT count(DISTINCT example_hash) FROM rollouts
WHERE run_id IN ($before, $after) AND reward IS NOT NULL AND example_hash NOT IN (
    SELECT example_hash FROM pairs($before, $after)
)
"""
_SETTINGS = """
SELECT
    model, base_url AS endpoint, env_args AS "environment's arguments", extra_env_kwargs AS "environment's settings",
    sampling_args AS sampling, dataset_fingerprint AS dataset, rollouts_per_example AS "rollouts per example",
    env_hash AS "environment's code", scoring_hash AS scoring
FROM runs WHERE run_id = $run_id
"""


@dataclass(frozen=True)
class Paired:
    """Two runs, paired by the content of their examples; of an example with several rollouts their mean counts.

    Attributes:
        pairs: examples that both have scored.
        unpaired: examples that one of them has scored.
        difference: of the mean reward over the pairs, after minus before; None without pairs.
        stderr: standard error of the difference; None with fewer than two pairs.
        p_worse, p_better: chance of a difference as low, or as high, as this one where nothing has changed.
        differs: settings in which the two differ.
    """

    pairs: int
    unpaired: int
    difference: float | None
    stderr: float | None
    p_worse: float
    p_better: float
    differs: list[str]


def pair_runs(warehouse: Warehouse, before: str, after: str) -> Paired:
    """Compares two runs of a warehouse.

    Args:
        warehouse: has them both.
        before, after: their ids.

    Raises:
        WarehouseError: it cannot be asked.
    """
    both = {"before": before, "after": after}
    differences = [float(row[0]) for row in warehouse.query(_PAIRS, both).rows]
    estimate = clustered_mean([[one] for one in differences])
    [(unpaired,)] = warehouse.query(_UNPAIRED, both).rows
    was, is_now = _settings(warehouse, before), _settings(warehouse, after)
    return Paired(
        pairs=len(differences),
        unpaired=unpaired,
        difference=estimate.mean,
        stderr=estimate.stderr,
        p_worse=chance_of_so_low(differences),
        p_better=chance_of_so_low([-one for one in differences]),
        differs=[name for name, value in was.items() if value != is_now[name]],
    )


def _settings(warehouse: Warehouse, run_id: str) -> Mapping[str, Any]:
    found = warehouse.query(_SETTINGS, {"run_id": run_id})
    return dict(zip(found.columns, found.rows[0], strict=True))
