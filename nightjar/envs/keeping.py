"""Where ``Environment.generate`` keeps results: in memory, or in a run directory that can be resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from nightjar.data import fingerprint
from nightjar.rollout.records import Key, key_of, result_row
from nightjar.rollout.state import State
from nightjar.runs import Journal, RunDirectory
from nightjar.runs.identity import check_same
from nightjar.runs.jsonl import scan_lines

_MAY_CHANGE = ("num_examples", "pass_threshold")


class Memory:
    """A recorder that keeps rows in memory."""

    def __init__(self, hashes: Mapping[int, str], state_columns: Sequence[str]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._hashes = hashes
        self._state_columns = state_columns
        self._attempts: dict[Key, int] = defaultdict(int)

    def is_scored(self, key: Key) -> bool:  # noqa: ARG002 - nothing was done before
        """Says no."""
        return False

    def is_generated(self, key: Key) -> bool:  # noqa: ARG002 - nothing was done before
        """Says no."""
        return False

    def attempted(self, state: State) -> None:
        """Counts a finished attempt."""
        self._attempts[key_of(state)] += 1

    def scored(self, states: Sequence[State]) -> Sequence[dict[str, Any]]:
        """Keeps the results of a group."""
        rows = [
            result_row(
                state,
                attempts=self._attempts[key_of(state)],
                example_hash=self._hashes[state["example_id"]],
                state_columns=self._state_columns,
            )
            for state in states
        ]
        self.rows.extend(rows)
        return rows

    def restore(self, state: State) -> State:
        """Returns the state: nothing was generated before."""
        return state


class Keeping:
    """Keeps the results of one ``generate``, as a context manager.

    Args:
        path: the run directory; None for memory.
        facts: what the run is, as its configuration keeps it.
        hashes: example_id to content hash.
        state_columns: keys of the state that rows keep besides their own.

    Attributes:
        path: the run directory; None for memory.
        recorder: for the engine.
        rows_before: results that were there before.

    Raises:
        ResumeMismatchError: the folder holds another run.
        RunError: the folder cannot be used.
    """

    def __init__(
        self, path: Path | None, facts: Mapping[str, Any], hashes: Mapping[int, str], state_columns: Sequence[str]
    ) -> None:
        self.path = path
        self._directory = RunDirectory(path) if path is not None else None
        self._facts: dict[str, Any] = orjson.loads(orjson.dumps(facts, default=str, option=orjson.OPT_NON_STR_KEYS))
        self._hashes = hashes
        self._state_columns = state_columns
        self._opened = ExitStack()
        self.recorder: Memory | Journal = Memory(hashes, state_columns)
        self.rows_before: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        if self._directory is not None:
            with ExitStack() as opening:
                opening.enter_context(self._directory)
                self._settle(self._directory)
                journal = Journal(self._directory, self._hashes.__getitem__, self._state_columns)
                opening.callback(journal.close)
                self.recorder = journal
                self._opened = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def _settle(self, directory: RunDirectory) -> None:
        hashes = list(self._hashes.values())
        if directory.exists():
            identity = {name: value for name, value in self._facts.items() if name not in _MAY_CHANGE}
            check_same(directory, {"extra_env_kwargs": None, **identity}, hashes, None)
            self.rows_before = _rows(directory)
        directory.write_config(
            {
                **self._facts,
                "selected_examples": len(hashes),
                "dataset_fingerprint": fingerprint(hashes),
                "env_version": None,
            }
        )

    def finish(self) -> list[dict[str, Any]]:
        """Returns all rows, ordered by (example_id, rollout_index), when nothing is under way any more."""
        if isinstance(self.recorder, Memory):
            return sorted(self.recorder.rows, key=lambda row: (row["example_id"], row["rollout_index"]))
        self.recorder.finish()
        return _rows(self._directory)

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replaces the metadata of the run directory, where there is one."""
        if self._directory is not None:
            status = "completed" if metadata["scored"] == metadata["rollouts"] else "incomplete"
            self._directory.write_metadata({"run_id": self._directory.run_id, "status": status, **metadata})


def _rows(directory: RunDirectory | None) -> list[dict[str, Any]]:
    """Returns the rows of a run directory: of each rollout the last, which is its score of record."""
    lines = scan_lines(directory.results_path) if directory else ()
    rows = {Key(line.row["example_id"], line.row["rollout_index"]): line.row for line in lines}
    return list(rows.values())
