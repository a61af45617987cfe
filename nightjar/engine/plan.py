"""What is owed: which rollouts of which groups, cut into shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nightjar.engine.engine import Group
from nightjar.rollout.records import Key


class Finished(Protocol):
    """Knows what is finished of a run."""

    def is_scored(self, key: Key) -> bool:
        """Says whether a rollout has a result without an error."""

    def is_generated(self, key: Key) -> bool:
        """Says whether a rollout was generated, so that it can be scored without asking the model."""


class Shard:
    """A block of whole groups: one Prefect task for their generation and one for their scoring.

    A plain class, which Prefect passes on as it is: it walks what is inside collections and dataclasses.

    Attributes:
        number: 0, 1, 2, …
        first, last: positions of its examples among those the run takes.
        owed: example ids with something left to do.
    """

    __slots__ = ("first", "last", "number", "owed")

    def __init__(self, number: int, first: int, last: int, owed: Sequence[int]) -> None:
        self.number = number
        self.first = first
        self.last = last
        self.owed = owed

    @property
    def label(self) -> str:
        """Says which groups these are, counted from 1."""
        return f"groups {self.first + 1} to {self.last + 1}"


@dataclass(frozen=True)
class Plan:
    """How a run's rollouts form groups.

    Attributes:
        rollouts_per_example: r.
        is_independent: each rollout is scored by itself.
        scores_whole_groups: a reward function needs all rollouts of an example at once.
        rollouts: example_id to number of rollouts, of examples that have another number.
        asks_model: what is not generated is; else it is left out.
        chosen: the rollouts that may be owed, while all others stay as they are; None for all.
    """

    rollouts_per_example: int
    is_independent: bool
    scores_whole_groups: bool
    rollouts: Mapping[int, int] = field(default_factory=dict)
    asks_model: bool = True
    chosen: frozenset[Key] | None = None

    def owed(self, finished: Finished, example_id: int) -> list[Group]:
        """Returns the groups in which an example's rollouts are generated and scored; none where all are scored."""
        members = self.members(finished, example_id)
        parts = [[key] for key in members] if self.is_independent else [members] if members else []
        return [_group(part, finished) for part in parts]

    def members(self, finished: Finished, example_id: int) -> list[Key]:
        """Returns the rollouts of an example that are to be scored, some of them perhaps again."""
        keys = [key for key in self._keys(example_id) if self.asks_model or finished.is_generated(key)]
        left = {key for key in keys if not finished.is_scored(key)}
        missing = left if self.chosen is None else left & self.chosen
        again = bool(missing) and self.scores_whole_groups
        return [key for key in keys if key in missing or (again and key not in left)]

    def _keys(self, example_id: int) -> list[Key]:
        count = self.rollouts.get(example_id, self.rollouts_per_example)
        return [Key(example_id, index) for index in range(count)]

    def shards(self, finished: Finished, example_ids: Sequence[int], max_shards: int) -> list[Shard]:
        """Cuts a run's examples into at most ``max_shards`` blocks of equal size; finished ones owe nothing."""
        size = max(1, -(-len(example_ids) // max_shards))
        blocks = (
            (number, start, example_ids[start : start + size])
            for number, start in enumerate(range(0, len(example_ids), size))
        )
        return [
            Shard(number, start, start + len(block) - 1, self._with_something_owed(finished, block))
            for number, start, block in blocks
        ]

    def _with_something_owed(self, finished: Finished, block: Iterable[int]) -> tuple[int, ...]:
        return tuple(example_id for example_id in block if self.members(finished, example_id))


def _group(keys: Sequence[Key], finished: Finished) -> Group:
    generated = [key.rollout_index for key in keys if finished.is_generated(key)]
    return Group(
        example_id=keys[0].example_id,
        to_generate=tuple(k.rollout_index for k in keys if not finished.is_generated(k)),
        to_restore=tuple(generated),
    )
