"""Does a rollout's reward depend on whether it took more than one attempt? Then retrying has changed the mean."""

from __future__ import annotations

from dataclasses import dataclass

from nightjar.stats.effects import Effect, marked_effect
from nightjar.warehouse import Warehouse

_ROLLOUTS = """
SELECT example_id, reward, attempts > 1 AS retried
FROM segments.rollouts
WHERE run_id = $run_id AND reward IS NOT NULL
    AND EXISTS (FROM segments.rollouts WHERE run_id = $run_id AND reward IS NOT NULL AND attempts > 1)
"""


@dataclass(frozen=True)
class Retries:
    """The scored rollouts of a run that took more than one attempt.

    Attributes:
        count: how many.
        effect: how much higher their reward is than that of the others; None where that cannot be said.
    """

    count: int
    effect: Effect | None

    def matter(self, alpha: float) -> bool:
        """Says whether their reward is another than that of the others, with chance alpha where it is not."""
        return self.effect is not None and self.effect.p_value < alpha


def retries_of(warehouse: Warehouse, run_id: str, alpha: float = 0.05) -> Retries:
    """Returns what is known of the retried rollouts of a run.

    Args:
        warehouse: has it.
        run_id: of the run.
        alpha: the chance that the interval of the effect misses, over many.

    Raises:
        WarehouseError: it cannot be asked.
    """
    rows = warehouse.query_arrow(_ROLLOUTS, {"run_id": run_id})
    retried = rows["retried"].to_numpy(zero_copy_only=False).astype(bool)
    if not retried.any():
        return Retries(0, None)
    return Retries(
        int(retried.sum()), marked_effect(rows["reward"].to_numpy(), retried, rows["example_id"].to_numpy(), alpha)
    )
