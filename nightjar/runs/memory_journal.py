"""``MemoryJournal``: what is finished in a run of which nothing is kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nightjar.rollout.records import Key, RolloutOutput, key_of, result_row
from nightjar.rollout.state import State
from nightjar.runs.columns import StateColumns


class MemoryJournal:
    """Keeps the results of a run in memory, as ``Journal`` keeps them on disk.

    Args:
        hash_of: from an example_id to the example's content hash.
        state_columns: keys of the state that results keep besides their own.
    """

    has_generated = False
    tokens_before = 0, 0

    def __init__(self, hash_of: Callable[[int], str], state_columns: Sequence[str] = ()) -> None:
        self._hash_of = hash_of
        self.columns = StateColumns(state_columns)
        self._attempts: dict[Key, int] = {}
        self._results: dict[Key, RolloutOutput] = {}

    def is_scored(self, key: Key) -> bool:
        """Says whether a rollout has a result without an error."""
        return key in self._results and self._results[key]["error"] is None

    def is_generated(self, key: Key) -> bool:  # noqa: ARG002 - as Journal's
        """Says no: a state is kept until it is scored, and not longer."""
        return False

    def rewards(self) -> list[tuple[Key, float]]:
        """Returns the reward of every scored rollout."""
        return [(key, row["reward"]) for key, row in self._results.items() if row["reward"] is not None]

    def attempted(self, state: State) -> None:
        """Counts a finished attempt."""
        key = key_of(state)
        self._attempts[key] = self._attempts.get(key, 0) + 1

    def scored(self, states: Sequence[State]) -> Sequence[RolloutOutput]:
        """Keeps the results of a group, and returns them."""
        rows = []
        for state in states:
            key = key_of(state)
            row = result_row(
                state,
                attempts=self._attempts.get(key, 0),
                example_hash=self._hash_of(key.example_id),
                state_columns=self.columns.names,
            )
            self._results[key] = row
            self.columns.look_at(state, row)
            rows.append(row)
        return rows

    def restore(self, state: State) -> State:
        """Returns the state: nothing was generated before."""
        return state

    def rows(self) -> list[RolloutOutput]:
        """Returns the results, ordered by (example_id, rollout_index)."""
        return [self._results[key] for key in sorted(self._results)]

    def finish(self) -> None:
        """Does nothing: what is kept is in order when it is asked for."""
