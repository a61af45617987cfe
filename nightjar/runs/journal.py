"""``Journal``: what is finished in a run, kept the moment it is finished.

It holds the ledger and the results of a run directory open, knows which rollouts are generated and scored, and
keeps only places in files in memory, not rollouts.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import fsum, isclose
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nightjar.errors import RunDirectoryError
from nightjar.rollout.records import Key, RolloutOutput, attempt_row, key_of, restore_state, result_row
from nightjar.rollout.state import State
from nightjar.runs.columns import StateColumns
from nightjar.runs.directory import RunDirectory
from nightjar.runs.jsonl import JsonLines, Line, Place, replace_file, scan_lines

logger = logging.getLogger(__name__)

_SYNC_SECONDS = 1.0


class Score(NamedTuple):
    """A scored rollout's worth; both None where rollouts are not scored."""

    reward: float | None
    advantage: float | None


class Journal:
    """The ledger and the results of a locked run directory.

    Args:
        directory: the run directory.
        hash_of: from an example_id to the example's content hash.
        state_columns: keys of the state that results keep besides their own.

    Attributes:
        columns: which of these the states had.

    Raises:
        RunDirectoryError: a file cannot be opened, or is damaged; file and line are named.
    """

    def __init__(
        self,
        directory: RunDirectory,
        hash_of: Callable[[int], str],
        state_columns: Sequence[str] = (),
    ) -> None:
        self._hash_of = hash_of
        self.columns = StateColumns(state_columns)
        self._attempts: dict[Key, int] = {}
        self._generated: dict[Key, Place] = {}
        self._recorded: dict[Key, Place] = {}
        self._scored: dict[Key, Score] = {}
        self._unsaved_keys: set[str] = set()
        self._read(directory)
        self._ledger = JsonLines(directory.attempts_path)
        self._results = JsonLines(directory.results_path)
        self.results_path = directory.results_path
        self._is_ordered = False
        self._is_closing = threading.Event()
        self._syncing = threading.Thread(target=self._sync_repeatedly, daemon=True)
        self._syncing.start()

    def is_scored(self, key: Key) -> bool:
        """Says whether a rollout has a result without an error."""
        return key in self._scored

    @property
    def has_generated(self) -> bool:
        """Says whether the ledger holds any attempt that did not fail."""
        return bool(self._generated)

    def is_generated(self, key: Key) -> bool:
        """Says whether the ledger holds an attempt at a rollout that did not fail."""
        return key in self._generated

    def rewards(self) -> Iterator[tuple[Key, float]]:
        """Yields the reward of every scored rollout."""
        return ((key, score.reward) for key, score in self._scored.items() if score.reward is not None)

    def attempted(self, state: State) -> None:
        """Appends a finished attempt to the ledger."""
        key = key_of(state)
        number = self._attempts.get(key, 0) + 1
        row, unsaved = attempt_row(state, number, self._hash_of(key.example_id))
        [place] = self._ledger.append([row])
        self._attempts[key] = number
        if state["error"] is None:
            self._generated[key] = place
            self._warn_of(unsaved)

    def scored(self, states: Sequence[State]) -> Sequence[RolloutOutput]:
        """Appends the results of a group, or of a part of it, and returns them."""
        rows = [
            result_row(
                state,
                attempts=self._attempts.get(key_of(state), 0),
                example_hash=self._hash_of(state["example_id"]),
                state_columns=self.columns.names,
            )
            for state in states
        ]
        for state, row, place in zip(states, rows, self._results.append(rows), strict=True):
            self._remember(key_of(state), place, row)
            self.columns.look_at(state, row)
        return rows

    def restore(self, state: State) -> State:
        """Fills a fresh state with the attempt that the ledger holds."""
        return restore_state(state, self._ledger.read_row(self._generated[key_of(state)]))

    def finish(self) -> None:
        """Puts the results in order, one line a rollout, waits until all is on disk, and closes the files.

        Raises:
            RunDirectoryError: the disk is full or broken; the results are as they were.
        """
        try:
            self._ledger.sync()
            self._results.sync()
            self._order_results()
            self._is_ordered = True
        finally:
            self.close()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields the results that count: in order when they were put in order, as they came before that."""
        for line in scan_lines(self.results_path):
            if self._is_ordered or self._recorded.get(_key_in(line, self.results_path, ())) == line.place:
                yield line.row

    def close(self) -> None:
        """Closes the files as they are; once is enough."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._syncing.join()
        self._ledger.close()
        self._results.close()

    def _read(self, directory: RunDirectory) -> None:
        for line in scan_lines(directory.attempts_path):
            key = _key_in(line, directory.attempts_path, ("error",))
            self._attempts[key] = self._attempts.get(key, 0) + 1
            if line.row["error"] is None:
                self._generated[key] = line.place
        for line in scan_lines(directory.results_path):
            key = _key_in(line, directory.results_path, ("error", "reward", "advantage"))
            self._remember(key, line.place, line.row)

    def _remember(self, key: Key, place: Place, row: dict[str, Any]) -> None:
        self._recorded.pop(key, None)
        self._recorded[key] = place
        self._scored.pop(key, None)
        if row["error"] is None:
            self._scored[key] = Score(row["reward"], row["advantage"])

    def _warn_of(self, unsaved: Sequence[str]) -> None:
        for name in set(unsaved) - self._unsaved_keys:
            self._unsaved_keys.add(name)
            logger.warning("state[%r] cannot be saved: a resumed run scores without it", name)

    def _sync_repeatedly(self) -> None:
        while not self._is_closing.wait(_SYNC_SECONDS):
            try:
                self._ledger.sync()
                self._results.sync()
            except RunDirectoryError as error:
                logger.warning("Cannot sync the run directory to disk: %s", error)

    def _order_results(self) -> None:
        """Rewrites the results in order and without what was replaced, unless they are so already."""
        corrected = self._corrected_advantages()
        ordered = sorted(self._recorded)
        packed = sum(place.length for place in self._recorded.values()) == self._results.size
        if packed and not corrected and list(self._recorded) == ordered:
            return
        replace_file(self._results.path, (self._line(key, corrected) for key in ordered))

    def _line(self, key: Key, corrected: dict[Key, float]) -> bytes:
        place = self._recorded[key]
        if key not in corrected:
            return self._results.read_line(place)
        row = self._results.read_row(place) | {"advantage": corrected[key]}
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)

    def _corrected_advantages(self) -> dict[Key, float]:
        """Returns the advantages of groups that were scored in parts, where the group's mean has moved since."""
        groups: dict[int, list[float]] = defaultdict(list)
        for key, score in self._scored.items():
            if score.reward is not None:
                groups[key.example_id].append(score.reward)
        means = {example_id: fsum(rewards) / len(rewards) for example_id, rewards in groups.items()}
        return {
            key: score.reward - means[key.example_id]
            for key, score in self._scored.items()
            if score.reward is not None
            and score.advantage is not None
            and not isclose(score.advantage, score.reward - means[key.example_id], abs_tol=1e-12)
        }


def _key_in(line: Line, path: Path, fields: Sequence[str]) -> Key:
    row = line.row
    if not (isinstance(row.get("example_id"), int) and isinstance(row.get("rollout_index"), int)):
        raise RunDirectoryError(f"{path}, line {line.number} is damaged: it names no rollout")
    for field in fields:
        if field not in row:
            raise RunDirectoryError(f"{path}, line {line.number} is damaged: it has no {field!r}")
    return Key(row["example_id"], row["rollout_index"])
