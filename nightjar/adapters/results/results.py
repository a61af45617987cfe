"""``ForeignRun``: a run of another program; ``ResultsWriter`` puts its rollouts into ``results.jsonl``, in order."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import fsum, isnan, nan
from pathlib import Path
from typing import Any, Self

import orjson

from nightjar.data import fingerprint
from nightjar.runs.jsonl import JsonLines, Place, replace_file

_BATCH = 256
_ID_CHARACTERS = 16


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        rollouts: how many.
        examples: how many different ones they are of.
        most_rollouts: the highest rollout index of any example, plus 1.
        dataset_fingerprint: of the examples in the order of their ids.
        content: a hash of all of it.
        original_reward: the mean of what the other program took for rewards; None where it has none.
    """

    rollouts: int
    examples: int
    most_rollouts: int
    dataset_fingerprint: str
    content: str
    original_reward: float | None


class ResultsWriter:
    """Writes a run's results; of a rollout only a few numbers are kept in memory.

    Args:
        folder: gets ``results.jsonl``.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "results.jsonl"
        self._unordered = JsonLines(folder / ".unordered.jsonl")
        self._waiting: list[Mapping[str, Any]] = []
        self._example_ids, self._rollout_indexes = array("q"), array("q")
        self._offsets, self._lengths = array("q"), array("q")
        self._rewards, self._originals = array("d"), array("d")
        self._hashes: dict[int, str] = {}
        self._content = hashlib.sha256()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Closes its files."""
        self._unordered.close()

    def example_hash(self, example_id: int, computed: str) -> str:
        """Returns the hash that the first row of an example gave it: one example has one hash in a run."""
        return self._hashes.setdefault(example_id, computed)

    def add(self, row: Mapping[str, Any], original_reward: float | None) -> None:
        """Takes a rollout; of several with the same example id and rollout index, the last counts.

        Args:
            row: as in ``results.jsonl``, but for the advantage.
            original_reward: what the other program took for its reward.
        """
        self._example_ids.append(row["example_id"])
        self._rollout_indexes.append(row["rollout_index"])
        self._rewards.append(nan if row["reward"] is None else row["reward"])
        self._originals.append(nan if original_reward is None else original_reward)
        self._waiting.append(row)
        if len(self._waiting) == _BATCH:
            self._flush()

    def finish(self) -> Written:
        """Writes ``results.jsonl``: in order, one line a rollout, with advantages."""
        self._flush()
        order = self._order()
        replace_file(self._path, self._lines(order))
        self._unordered.path.unlink()
        originals = [value for value in (self._originals[n] for n in order) if not isnan(value)]
        return Written(
            rollouts=len(order),
            examples=len(self._hashes),
            most_rollouts=max(self._rollout_indexes, default=-1) + 1,
            dataset_fingerprint=fingerprint(self._hashes[example_id] for example_id in sorted(self._hashes)),
            content=self._content.hexdigest(),
            original_reward=fsum(originals) / len(originals) if originals else None,
        )

    def _flush(self) -> None:
        for place in self._unordered.append(self._waiting):
            self._offsets.append(place.offset)
            self._lengths.append(place.length)
        self._waiting.clear()

    def _order(self) -> array[int]:
        """Returns the numbers of the rows that count, in the order of example id and rollout index."""
        ordered = sorted(range(len(self._lengths)), key=self._rollout_indexes.__getitem__)
        ordered.sort(key=self._example_ids.__getitem__)
        return array("q", (max(same) for _, same in groupby(ordered, key=self._key)))

    def _key(self, n: int) -> tuple[int, int]:
        return self._example_ids[n], self._rollout_indexes[n]

    def _lines(self, order: array[int]) -> Iterator[bytes]:
        for _, group in groupby(order, key=self._example_ids.__getitem__):
            members = list(group)
            rewards = [self._rewards[n] for n in members if not isnan(self._rewards[n])]
            mean = fsum(rewards) / len(rewards) if rewards else nan
            for n in members:
                advantage = self._rewards[n] - mean
                row = self._unordered.read_row(Place(self._offsets[n], self._lengths[n]))
                row["advantage"] = None if isnan(advantage) else advantage
                line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
                self._content.update(line)
                yield line


@dataclass(frozen=True)
class ForeignRun:
    """A run of another program, its results written already.

    Attributes:
        run_id: derived from what the run is, not from where it lies.
        settings: fields of ``metadata.json`` that are taken over as they are.
        num_examples: how many were asked for; 0 where nothing says so.
        rollouts_per_example: how many were asked for; 0 where nothing says so.
        pass_threshold: the reward from which on a rollout is correct.
        state_columns: columns of the results that Nightjar has no field for.
        original: the other program's own account: its name, ids and aggregates.
        original_reward: the average reward by that account; None where there is none.
        reward_precision: to how much that average is exact.
        written: the results.
    """

    run_id: str
    settings: dict[str, Any]
    num_examples: int
    rollouts_per_example: int
    pass_threshold: float
    state_columns: list[str]
    original: dict[str, Any]
    original_reward: float | None
    reward_precision: float
    written: Written


def digest(*parts: Any) -> str:
    """Returns 16 hex digits that identify JSON-ready values."""
    content = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return hashlib.sha256(content).hexdigest()[:_ID_CHARACTERS]
