"""What a publish tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishReport:
    """What a publish put into the warehouse.

    Attributes:
        run_id: the run.
        rollouts: how many records it has, failed ones too.
        failed: how many of them failed.
        attempts: how many attempts are in its ledger.
        is_new: False where the warehouse had just this content already, or that of a later moment.
        seconds: how long it took.
        is_older: whether what the warehouse had is of a later moment.
        is_update: whether the warehouse had the run, as of an earlier moment.
    """

    run_id: str
    rollouts: int
    failed: int
    attempts: int
    is_new: bool
    seconds: float
    is_older: bool = False
    is_update: bool = False

    def line(self, location: str) -> str:
        """Says what the warehouse at a location holds of the run now."""
        if self.is_older:
            return f"Run {self.run_id} is in {location} with newer attempts: nothing was changed."
        done = "Published" if self.is_new else "Already there:"
        return f"{done} {self.rollouts} rollouts of run {self.run_id} in {location}"
