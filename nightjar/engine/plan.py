"""The remaining rollouts of a run: their groups, cut into shards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from nightjar.core.rollout.records import Key
from nightjar.core.rollout.state import State

GroupQueue: TypeAlias = "asyncio.Queue[Group | None]"
"""Groups that are generated and wait for scoring; None marks the end."""
UnscoredGroups: TypeAlias = "dict[int, Group]"
"""Groups taken from a queue that are not scored yet, by ``id()``."""


@dataclass(slots=True)
class Group:
    """The remaining rollouts of one example, by index. ``to_restore`` has generated rollouts that only need scoring."""

    example_id: int
    to_generate: tuple[int, ...]
    to_restore: tuple[int, ...] = ()
    states: dict[int, State] = field(default_factory=dict)

    @property
    def members(self) -> tuple[int, ...]:
        return (*self.to_generate, *self.to_restore)

    def as_generated(self) -> Group:
        """Returns the group as it was before scoring.

        Generated rollouts are restored again; failed rollouts are kept.
        """
        failed = {index: state for index, state in self.states.items() if state["error"] is not None}
        restored = tuple(index for index in sorted(self.states) if index not in failed)
        return Group(self.example_id, to_generate=(), to_restore=restored, states=failed)


class Finished(Protocol):
    def is_scored(self, key: Key) -> bool: ...
    def is_filtered(self, key: Key) -> bool: ...
    def is_generated(self, key: Key) -> bool: ...


class Shard:
    """A block of whole groups; a plain class, because Prefect walks the content of collections and dataclasses."""

    __slots__ = ("first", "last", "number", "remaining")

    def __init__(self, number: int, first: int, last: int, remaining: Sequence[int]) -> None:
        self.number = number
        self.first = first
        self.last = last
        self.remaining = remaining

    @property
    def label(self) -> str:
        return f"groups {self.first + 1} to {self.last + 1}"


@dataclass(frozen=True)
class Plan:
    """How the rollouts of a run form groups.

    Only ``chosen`` rollouts may be repeated. If ``chosen`` is None, all rollouts except filtered ones may be repeated.
    ``rollouts`` has the numbers of rollouts, by example id, that differ from ``rollouts_per_example``. Without
    ``asks_model``, rollouts that are not generated are left out.
    """

    rollouts_per_example: int
    is_independent: bool
    scores_whole_groups: bool
    rollouts: Mapping[int, int] = field(default_factory=dict)
    asks_model: bool = True
    chosen: frozenset[Key] | None = None

    def remaining_groups(self, finished: Finished, example_id: int) -> list[Group]:
        members = self.members(finished, example_id)
        parts = [[key] for key in members] if self.is_independent else [members] if members else []
        return [_group(part, finished) for part in parts]

    def members(self, finished: Finished, example_id: int) -> list[Key]:
        count = self.rollouts.get(example_id, self.rollouts_per_example)
        keys = [Key(example_id, index) for index in range(count)]
        if not self.asks_model:
            keys = [key for key in keys if finished.is_generated(key)]
        left = [key for key in keys if not finished.is_scored(key)]
        if self.chosen is None:
            missing = [key for key in left if not finished.is_filtered(key)]
        else:
            missing = [key for key in left if key in self.chosen]
        if not (missing and self.scores_whole_groups):
            return missing
        left_out = {*left} - {*missing}
        return [key for key in keys if key not in left_out]

    def shards(self, finished: Finished, example_ids: Sequence[int], max_shards: int) -> list[Shard]:
        """Cuts a run's examples into at most ``max_shards`` blocks of equal size, including finished blocks."""
        size = max(1, -(-len(example_ids) // max_shards))
        blocks = [(start, example_ids[start : start + size]) for start in range(0, len(example_ids), size)]
        return [
            Shard(number, start, start + len(block) - 1, tuple(each for each in block if self.members(finished, each)))
            for number, (start, block) in enumerate(blocks)
        ]


def _group(keys: Sequence[Key], finished: Finished) -> Group:
    generated = tuple(key.rollout_index for key in keys if finished.is_generated(key))
    missing = tuple(key.rollout_index for key in keys if not finished.is_generated(key))
    return Group(keys[0].example_id, to_generate=missing, to_restore=generated)
