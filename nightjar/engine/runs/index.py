"""``RolloutIndex``: a journal's facts in arrays, with 150 bytes per rollout.

Objects would take over a kilobyte each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import groupby
from math import fsum, isclose, isnan, nan

from nightjar.core.rollout.records import Key
from nightjar.engine.runs.jsonl import Place

# A key is one integer, example_id above rollout_index: it takes less memory than a tuple, and sorts in the same order.
_INDEX_BITS = 32
LARGEST_ROLLOUT_INDEX = (1 << _INDEX_BITS) - 1
_NOWHERE = Place(0, 0)


class Places:
    def __init__(self) -> None:
        self._offsets, self._lengths = array("Q"), array("Q")

    def append(self, place: Place) -> None:
        self._offsets.append(place.offset)
        self._lengths.append(place.length)

    def __getitem__(self, slot: int) -> Place:
        return Place(self._offsets[slot], self._lengths[slot])

    def __setitem__(self, slot: int, place: Place) -> None:
        self._offsets[slot], self._lengths[slot] = place

    def has(self, slot: int) -> bool:
        return self._lengths[slot] > 0


class RolloutIndex:
    """Gives each rollout a slot, a number from 0. Missing ``rewards`` and ``advantages`` are NaN."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self.attempts = array("L")
        self.generated, self.recorded = Places(), Places()
        self.is_scored, self.is_filtered = bytearray(), bytearray()
        self.rewards, self.advantages = array("d"), array("d")

    def known_slot(self, key: Key) -> int | None:
        return self._slots.get(key.example_id << _INDEX_BITS | key.rollout_index)

    def slot(self, key: Key) -> int:
        known = self._slots
        slot = known.setdefault(key.example_id << _INDEX_BITS | key.rollout_index, len(known))
        if slot == len(self.attempts):
            self.attempts.append(0)
            self.generated.append(_NOWHERE)
            self.recorded.append(_NOWHERE)
            self.is_scored.append(False)
            self.is_filtered.append(False)
            self.rewards.append(nan)
            self.advantages.append(nan)
        return slot

    def set_result(
        self, slot: int, place: Place, scores: tuple[float | None, float | None] | None, *, is_filtered: bool = False
    ) -> None:
        """Records a result, and replaces an earlier result.

        ``scores`` are reward and advantage, or None after an error.
        """
        reward, advantage = scores or (None, None)
        self.recorded[slot] = place
        self.is_scored[slot], self.is_filtered[slot] = scores is not None, is_filtered
        self.rewards[slot] = nan if reward is None else reward
        self.advantages[slot] = nan if advantage is None else advantage

    def to_restore(self) -> set[int]:
        return {slot for slot, scored in enumerate(self.is_scored) if self.generated.has(slot) and not scored}

    def all_rewards(self) -> Iterator[tuple[Key, float]]:
        for name, slot in self._slots.items():
            if not isnan(self.rewards[slot]):
                yield Key(name >> _INDEX_BITS, name & LARGEST_ROLLOUT_INDEX), self.rewards[slot]

    def recorded_slots(self) -> list[int]:
        return [self._slots[name] for name in self._recorded_names()]

    def moved_advantages(self) -> dict[int, float]:
        """Returns new advantages, by slot, for groups that were scored in parts and whose mean has changed."""
        moved = {}
        for _, names in groupby(self._recorded_names(), lambda name: name >> _INDEX_BITS):
            slots = [slot for slot in map(self._slots.__getitem__, names) if not isnan(self.rewards[slot])]
            mean = fsum(self.rewards[slot] for slot in slots) / max(1, len(slots))
            for slot in slots:
                known, advantage = self.advantages[slot], self.rewards[slot] - mean
                if not isnan(known) and not isclose(known, advantage, abs_tol=1e-12):
                    moved[slot] = advantage
        return moved

    def _recorded_names(self) -> list[int]:
        return sorted(name for name, slot in self._slots.items() if self.recorded.has(slot))
