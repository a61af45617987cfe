"""Reads a stored run with its rollouts and notes, in the form that all exports use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from nightjar.core.files import scratch_folder
from nightjar.engine.runs import RunDirectory
from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import as_records
from nightjar.warehouse.storage.records import NOTES

_RUN = "FROM runs WHERE run_id = ?"
_NOTES = "SELECT * EXCLUDE (note_id, run_id) FROM notes WHERE run_id = ? ORDER BY written_at"
_ROLLOUTS = "FROM rollouts WHERE run_id = ? ORDER BY example_id, rollout_index LIMIT ?"
_WITHOUT_STATE = f"SELECT * EXCLUDE (trajectory, state) {_ROLLOUTS}"


@dataclass(frozen=True)
class ReadRun:
    """A row of ``runs`` and its rows of ``rollouts``, with JSON parsed. Each rollout has a list of ``notes``."""

    row: dict[str, Any]
    rollouts: list[dict[str, Any]]

    @property
    def rollout_count(self) -> int:
        """The number of rollouts of the run, of which ``rollouts`` may have only the first."""
        return int((self.row["scored"] or 0) + (self.row["failed"] or 0))

    @property
    def missing(self) -> int:
        """The number of planned rollouts that the run does not have, for instance because it was killed."""
        return max(0, (self.row["rollouts"] or 0) - self.rollout_count)


def read_run(found: StoredRun, limit: int | None = None, *, with_state: bool = True) -> ReadRun:
    """Returns the run with its first ``limit`` rollouts (None: all).

    Raises ``ConfigError`` if there are no rollouts.
    """
    with _published(found) as warehouse:
        sql = _ROLLOUTS if with_state else _WITHOUT_STATE
        rollouts = as_records(warehouse.query(sql, [found.run_id, limit]))
        if not rollouts:
            raise ConfigError(f"Run {found.run_id!r} has no rollouts yet, so there is nothing to export")
        [row] = as_records(warehouse.query(_RUN, [found.run_id]))
        notes = _notes(warehouse, found.run_id)
    if found.path is not None:
        row["status"] = RunDirectory(found.path).status(row)
    if row["cost"] is None:
        row["cost"] = found.cost
    for rollout in rollouts:
        rollout["notes"] = notes.get((rollout["example_id"], rollout["rollout_index"]), [])
    return ReadRun(row, rollouts)


def failure_text(rollout: Mapping[str, Any]) -> str | None:
    """Returns the error of a rollout in one text, or None if the rollout has no error."""
    if not rollout["error"]:
        return None
    return f"{rollout['error_chain'] or rollout['error']}: {rollout['error_message'] or ''}"


def _notes(warehouse: Warehouse, run_id: str) -> dict[tuple[int, int], list[dict[str, Any]]]:
    notes: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for note in warehouse.query(_NOTES, [run_id]).records():
        notes.setdefault((note.pop("example_id"), note.pop("rollout_index")), []).append(note)
    return notes


@contextmanager
def _published(found: StoredRun) -> Iterator[Warehouse]:
    """Yields a warehouse with the run.

    For a run on disk, yields a temporary warehouse with the actual warehouse's notes.
    """
    if found.path is None:
        yield found.warehouse
        return
    with scratch_folder() as folder:
        alone = Warehouse(folder / "warehouse")
        alone.publish(found.path, tidies=False)
        with suppress(WarehouseError):
            alone.write_rows(NOTES, [note for note in found.warehouse.rows(NOTES) if note.run_id == found.run_id])
        yield alone
