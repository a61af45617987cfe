"""``StoredRun``: a run that is on disk here, or in the warehouse, as somebody looks at it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nightjar.errors import ConfigError, RunDirectoryError, WarehouseError
from nightjar.parts import Part
from nightjar.runs import RunDirectory, run_directories
from nightjar.runs.jsonl import scan_lines
from nightjar.warehouse import Warehouse, resolve_warehouse

logger = logging.getLogger(__name__)

_JSON = ("prompt", "completion", "info", "tool_defs")
_ROLLOUTS = """
SELECT
    example_id, rollout_index, prompt, completion, answer, info, reward, metrics, error, error_message, is_truncated,
    stop_condition, attempts
FROM rollouts WHERE run_id = ? ORDER BY example_id, rollout_index
"""
_SHOWN = 5


@dataclass(frozen=True)
class StoredRun:
    """A run and where it is.

    Attributes:
        metadata: what ``metadata.json`` says.
        path: its run directory; None of one that is only in the warehouse, as one that was imported.
        warehouse: where to look otherwise.
        cost: of the recorded rollouts; None where it is not published, or no price is known.
    """

    metadata: dict[str, Any]
    path: Path | None
    warehouse: Warehouse
    cost: float | None = None

    @property
    def run_id(self) -> str:
        """Its id."""
        return str(self.metadata["run_id"])

    @property
    def directory(self) -> RunDirectory:
        """Its run directory.

        Raises:
            RunDirectoryError: it is not here.
        """
        if self.path is None:
            raise RunDirectoryError(
                f"Run {self.run_id!r} is in {self.warehouse.location}, but its directory is not here"
            )
        return RunDirectory(self.path)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields its rollouts as ``results.jsonl`` has them; of a run in the warehouse what a reader wants to see."""
        if self.path is not None:
            yield from (line.row for line in scan_lines(RunDirectory(self.path).results_path))
            return
        for row in self.warehouse.query(_ROLLOUTS, [self.run_id]).records():
            message = row.pop("error_message")
            yield (
                row
                | {name: json.loads(row[name]) for name in _JSON if row.get(name)}
                | {"error": row["error"] and {"error": row["error"], "message": message}}
            )


def stored_runs(output_dir: Path | None = None, warehouse: str | None = None) -> list[StoredRun]:
    """Returns the runs that there are, the newest first; parts of a run until that is there.

    Args:
        output_dir: those of this folder alone.
        warehouse: those of the warehouse at this location alone. Where neither is given, all that are in the folders
            and the warehouse that runs go to.

    Raises:
        WarehouseError: the warehouse that was given cannot be asked.
    """
    asked = Warehouse(resolve_warehouse(warehouse))
    found = {} if warehouse and not output_dir else {run.run_id: run for run in _on_disk(output_dir, asked)}
    if output_dir is None:
        try:
            published = [_published(row, asked) for row in asked.query("SELECT metadata, run_dir, cost FROM runs").rows]
        except WarehouseError:
            if warehouse:
                raise
            published = []
        costs = {run.run_id: run.cost for run in published}
        here = {run_id: replace(run, cost=costs.get(run_id)) for run_id, run in found.items()}
        found = {run.run_id: run for run in published} | here
    found = {run_id: run for run_id, run in found.items() if not (part := Part.of(run_id)) or part.run_id not in found}
    return sorted(found.values(), key=lambda run: run.metadata.get("started_at") or "", reverse=True)


def find_stored_run(asked: str, output_dir: Path | None = None, warehouse: str | None = None) -> StoredRun:
    """Returns the run that somebody means.

    Args:
        asked: a run directory, the id of a run, or how one begins.
        output_dir, warehouse: as for ``stored_runs``.

    Raises:
        ConfigError: there is none, or there are several.
        RunDirectoryError: it is damaged.
    """
    if (Path(asked) / "metadata.json").is_file():
        directory = RunDirectory(Path(asked))
        return _here(directory, Warehouse(resolve_warehouse(warehouse)))
    found = [run for run in stored_runs(output_dir, warehouse) if run.run_id.startswith(asked)]
    match [run for run in found if run.run_id == asked] or found:
        case [run]:
            return run
        case []:
            raise ConfigError(f"There is no run {asked!r}. Those that there are: nightjar eval list")
        case several:
            ids = ", ".join(run.run_id for run in several[:_SHOWN])
            raise ConfigError(f"{len(several)} runs begin with {asked!r}: {ids}. Give more of the id")


def _on_disk(output_dir: Path | None, warehouse: Warehouse) -> Iterator[StoredRun]:
    for directory in run_directories(output_dir):
        try:
            yield _here(directory, warehouse)
        except RunDirectoryError as damage:
            logger.warning("%s", damage)


def _here(directory: RunDirectory, warehouse: Warehouse) -> StoredRun:
    metadata = directory.read_metadata()
    told = {"run_id": directory.run_id, **metadata, "status": directory.status(metadata)}
    return StoredRun(told, directory.path, warehouse)


def _published(row: tuple[Any, ...], warehouse: Warehouse) -> StoredRun:
    metadata, run_dir, cost = row
    path = Path(run_dir) if run_dir and (Path(run_dir) / "metadata.json").is_file() else None
    return StoredRun(json.loads(metadata), path, warehouse, cost)
