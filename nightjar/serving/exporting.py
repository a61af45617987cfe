"""A run in a file that is handed on: a page that opens offline, or a log of Inspect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.foreign.inspect_log import inspect_log, log_name
from nightjar.runs import RunDirectory
from nightjar.scratch import scratch_folder
from nightjar.serving.conversation import pretty
from nightjar.serving.rollouts import readable
from nightjar.serving.templating import standalone
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result_values import as_records, value_text
from nightjar.warehouse.storage.notes import NOTES
from nightjar.warehouse.storage.segments import is_held

_RUN = "FROM runs WHERE run_id = ?"
_VERSION = "SELECT version FROM runs WHERE run_id = ?"
_NOTES = "SELECT * EXCLUDE (note_id, run_id) FROM notes WHERE run_id = ? ORDER BY written_at"
_ROLLOUTS = "FROM rollouts WHERE run_id = ? ORDER BY example_id, rollout_index LIMIT ?"


@dataclass(frozen=True)
class HandedOn:
    """What was made of a run.

    Attributes:
        text: the content of a file.
        shown: how many rollouts are in it.
        rollouts: how many there are.
        name: what the file is best called.
    """

    text: str
    shown: int
    rollouts: int
    name: str


def run_page(found: StoredRun, limit: int) -> HandedOn:
    """Returns a run as a page that needs nothing beside it.

    Args:
        found: the run.
        limit: how many rollouts it has, with whole examples at its end.

    Raises:
        ConfigError: it has no rollout yet.
        WarehouseError: it cannot be read.
    """
    run, rollouts = _read(found, limit + (found.metadata.get("rollouts_per_example") or 1))
    examples = [list(rows) for _, rows in groupby(rollouts, key=lambda row: row["example_id"])]
    shown: list[list[dict[str, Any]]] = []
    for example in examples:
        if shown and sum(map(len, shown)) + len(example) > limit:
            break
        shown.append(example)
    values = [
        [readable(row) | {"index": row["rollout_index"], "noted": bool(row["notes"])} for row in example]
        for example in shown
    ]
    noted = sum(row["noted"] for example in values for row in example)
    config = pretty(run["config"]) if run["config"] else None
    newer = _is_newer(found, run["version"])
    text = standalone("export.html", run=run, examples=values, noted=noted, config=config, newer=newer)
    return HandedOn(text, sum(map(len, shown)), _count(run), f"{found.run_id}.html")


def run_log(found: StoredRun) -> HandedOn:
    """Returns a run as a log of Inspect; raises like ``run_page``."""
    run, rollouts = _read(found, None)
    text = json.dumps(inspect_log(run, rollouts), default=value_text)
    return HandedOn(text, len(rollouts), _count(run), log_name(run))


def _count(run: Mapping[str, Any]) -> int:
    return int((run["scored"] or 0) + (run["failed"] or 0))


def _read(found: StoredRun, limit: int | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the rows of a run in the tables ``runs`` and ``rollouts``, JSON parsed, these with their ``notes``."""
    with _published(found) as warehouse:
        rollouts = as_records(warehouse.query(_ROLLOUTS, [found.run_id, limit]))
        if not rollouts:
            raise ConfigError(f"Run {found.run_id!r} has no rollout yet: there is nothing to export")
        [run] = as_records(warehouse.query(_RUN, [found.run_id]))
        notes = _notes(warehouse, found.run_id)
    if found.path is not None:
        run["status"] = RunDirectory(found.path).status(run)
    noted = [{**row, "notes": notes.get((row["example_id"], row["rollout_index"]), [])} for row in rollouts]
    return {**run, "cost": found.cost if run["cost"] is None else run["cost"]}, noted


def _is_newer(found: StoredRun, version: str) -> bool:
    """Says whether a version of a run is newer than the one that the warehouse holds."""
    with suppress(WarehouseError):
        held = found.warehouse.query(_VERSION, [found.run_id]).rows
        return bool(held) and not is_held(held[0][0], version)
    return False


def _notes(warehouse: Warehouse, run_id: str) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Returns what people have noted of rollouts of a run."""
    notes: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for note in warehouse.query(_NOTES, [run_id]).records():
        notes.setdefault((note.pop("example_id"), note.pop("rollout_index")), []).append(note)
    return notes


@contextmanager
def _published(found: StoredRun) -> Iterator[Warehouse]:
    """Gives a warehouse with the run as it is now: one of its own for a run that is on disk here, with its notes.

    People write these in the warehouse that it is published to.
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
