"""``PublishReport``: the result of a publish."""

from __future__ import annotations

from dataclasses import dataclass

from nightjar.core.text import counted


@dataclass(frozen=True)
class PublishReport:
    """The result of a publish; ``rollouts`` includes failed ones.

    ``is_new``: the warehouse did not have this or newer content. ``is_older``: the warehouse has newer content.
    ``is_update``: the warehouse had the run with older content.
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
        if self.is_older:
            return f"Run {self.run_id} is in {location} with newer attempts: nothing was changed."
        done = "Published" if self.is_new else "Already there:"
        return f"{done} {counted(self.rollouts, 'rollout')} of run {self.run_id} in {location}"
