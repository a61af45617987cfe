"""``StoredRun``: a run on the local disk or in the warehouse."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from nightjar.core.files import there_is
from nightjar.core.parts import Part
from nightjar.engine.runs import RunDirectory, run_directories
from nightjar.errors import ConfigError, RunDirectoryError, WarehouseError
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
    """A run with its warehouse. An unknown ``cost`` is None.

    ``path`` is the run directory, or None if the run directory is not on this machine.
    """

    metadata: dict[str, Any]
    path: Path | None
    warehouse: Warehouse
    cost: float | None = None

    @property
    def run_id(self) -> str:
        return str(self.metadata["run_id"])

    @property
    def directory(self) -> RunDirectory:
        if self.path is None:
            raise RunDirectoryError(
                f"Run {self.run_id!r} is in {self.warehouse.location}, but its directory is not here"
            )
        return RunDirectory(self.path)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields rollouts as in ``results.jsonl``; from the warehouse, only the columns that a reader needs."""
        if self.path is not None:
            yield from (line.row for line in RunDirectory(self.path).results())
            return
        for row in self.warehouse.query(_ROLLOUTS, [self.run_id]).records():
            message = row.pop("error_message")
            yield (
                row
                | {name: json.loads(row[name]) for name in _JSON if row.get(name)}
                | {"error": row["error"] and {"error": row["error"], "message": message}}
            )


def stored_runs(output_dir: Path | None = None, warehouse: str | None = None) -> list[StoredRun]:
    """Returns the runs of a folder or warehouse (default: all), newest first. Joined parts are left out."""
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


def find_stored_run(asked: str, warehouse: str | None = None) -> StoredRun:
    """Returns the run for a run directory, a run id or the beginning of an id, among those of ``stored_runs``."""
    if (found := stored_run(asked, warehouse)) is None:
        if there_is(asked):
            command = shlex.join(["nightjar", "warehouse", "import", asked])
            raise ConfigError(f"{asked!r} is not a run of Nightjar. If it has results, import them first: {command}")
        raise ConfigError(f"There is no run {asked!r}. List them: nightjar eval list")
    return found


def stored_run(asked: str, warehouse: str | None = None) -> StoredRun | None:
    """Returns the run as ``find_stored_run`` does, or None if there is no such run."""
    if there_is(Path(asked, "metadata.json")):
        directory = RunDirectory(Path(asked))
        return _here(directory, Warehouse(resolve_warehouse(warehouse)))
    found = [run for run in stored_runs(warehouse=warehouse) if run.run_id.startswith(asked)]
    match [run for run in found if run.run_id == asked] or found:
        case [run]:
            return run
        case []:
            return None
        case several:
            ids = ", ".join(run.run_id for run in several[:_SHOWN])
            raise ConfigError(f"{len(several)} runs begin with {asked!r}: {ids}. Type more characters of the id")


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


@dataclass
class SampleGroup:
    """The rollouts of one example. A reward of None means not scored; at least ``pass_threshold`` means right."""

    example_id: int
    pass_threshold: float
    rewards: dict[int, float | None] = field(default_factory=dict)

    @property
    def scored(self) -> list[float]:
        return [reward for reward in self.rewards.values() if reward is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.scored) if self.scored else None

    @property
    def spread(self) -> float | None:
        return stdev(self.scored) if len(self.scored) > 1 else None

    @property
    def right(self) -> int:
        return sum(reward >= self.pass_threshold for reward in self.scored)

    @property
    def is_flipped(self) -> bool:
        return 0 < self.right < len(self.scored)


def groups_of(rows: Iterable[Mapping[str, Any]], pass_threshold: float) -> list[SampleGroup]:
    """Groups rollouts by example, in the order of examples. Of a repeated rollout, only the last row counts."""
    groups: dict[int, SampleGroup] = {}
    for row in rows:
        group = groups.setdefault(row["example_id"], SampleGroup(row["example_id"], pass_threshold))
        group.rewards[row["rollout_index"]] = None if row["error"] else row["reward"]
    for group in groups.values():
        group.rewards = dict(sorted(group.rewards.items()))
    return [groups[example_id] for example_id in sorted(groups)]
