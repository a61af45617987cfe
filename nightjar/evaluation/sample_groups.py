"""Rollouts of a run by example: which are right, and how far those of one example are apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any


@dataclass
class SampleGroup:
    """The rollouts of one example.

    Attributes:
        example_id: the example.
        pass_threshold: the reward from which on a rollout is right.
        rewards: of each rollout by its index, in their order; None of one that is not scored.

    Example:
        >>> group = SampleGroup(12, 0.5, {0: 1.0, 1: 0.0, 2: None})
        >>> group.mean, round(group.spread, 3), group.right, group.is_flipped
        (0.5, 0.707, 1, True)
    """

    example_id: int
    pass_threshold: float
    rewards: dict[int, float | None] = field(default_factory=dict)

    @property
    def scored(self) -> list[float]:
        """The rewards of those that are scored."""
        return [reward for reward in self.rewards.values() if reward is not None]

    @property
    def mean(self) -> float | None:
        """Their mean; None where none is scored."""
        return fmean(self.scored) if self.scored else None

    @property
    def spread(self) -> float | None:
        """Their standard deviation; None with fewer than two."""
        return stdev(self.scored) if len(self.scored) > 1 else None

    @property
    def right(self) -> int:
        """How many reach the threshold."""
        return sum(reward >= self.pass_threshold for reward in self.scored)

    @property
    def is_flipped(self) -> bool:
        """Says whether some are right and others wrong."""
        return 0 < self.right < len(self.scored)


def groups_of(rows: Iterable[Mapping[str, Any]], pass_threshold: float) -> list[SampleGroup]:
    """Returns the examples that rollouts are of, in their order; of a rollout that was done again, the last counts."""
    groups: dict[int, SampleGroup] = {}
    for row in rows:
        group = groups.setdefault(row["example_id"], SampleGroup(row["example_id"], pass_threshold))
        group.rewards[row["rollout_index"]] = None if row["error"] else row["reward"]
    for group in groups.values():
        group.rewards = dict(sorted(group.rewards.items()))
    return [groups[example_id] for example_id in sorted(groups)]
