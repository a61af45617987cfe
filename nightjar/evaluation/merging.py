"""Makes a run of its parts, when the last of them has come into the warehouse.

Each part puts its run directory there before it looks whether all are there, so of those that end at the same moment
one at least sees all; two that do make the same run. Nobody waits for parts: a process that is killed before it has
joined them is done again by a Retry of its flow run, which owes nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from nightjar.errors import ConfigError, RunDirectoryError, WarehouseError
from nightjar.evaluation.archiving import fetch_archive, take_over
from nightjar.evaluation.saved_config import saved_config
from nightjar.parts import Part
from nightjar.runs import RunDirectory
from nightjar.runs.identity import differences
from nightjar.runs.joining import join_parts
from nightjar.scratch import scratch_folder
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.archives import Archives
from nightjar.warehouse.storage.store import Store

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 60.0
"""So long who joins the parts waits for another process that does so."""


def bring_part(part: Part, directory: RunDirectory, warehouse: Warehouse) -> None:
    """Gives a run directory what the warehouse keeps of a part, where that is more; errors as of ``fetch_part``."""
    if is_merged(part, warehouse) and not directory.exists():
        raise ConfigError(f"Run {part.run_id!r} is complete in {warehouse.location}: {part} is nothing to do any more")
    store = warehouse.store()
    if (version := Archives(store).newest(str(part))) is not None:
        with scratch_folder() as scratch:
            take_over(fetch_archive(store, str(part), version, scratch), directory)


def is_merged(part: Part, warehouse: Warehouse) -> bool:
    """Says whether the run of a part is in the warehouse, and complete: then nothing is kept of the part any more."""
    store = warehouse.store()
    return part.run_id in store.catalog().holders and Archives(store).newest(str(part)) is None


def merge_parts(part: Part, folder: Path, warehouse: Warehouse) -> RunDirectory | None:
    """Joins the parts of a run, where all are in the warehouse.

    Args:
        part: one of them.
        folder: where the run directory of the run is to be; one that is there with more attempts stays as it is.
        warehouse: holds the parts.

    Returns:
        The run directory; None where parts are missing, or another process has just joined them.

    Raises:
        RunError: they are of different runs, one is damaged, or the run directory cannot be written.
        WarehouseError: the warehouse cannot be read.
    """
    store = warehouse.store()
    parts = Part.all_of(part.run_id, part.count)
    versions = {each: version for each in parts if (version := Archives(store).newest(str(each)))}
    if missing := [str(each.number) for each in parts if each not in versions]:
        if not is_merged(part, warehouse):
            logger.info("Run %s is joined when its parts %s are there too", part.run_id, ", ".join(missing))
        return None
    directory = RunDirectory(folder / part.run_id, _PATIENCE_SECONDS)
    try:
        _merge(store, versions, directory)
    except WarehouseError:
        if is_merged(part, warehouse):  # by another process, which has removed the parts meanwhile
            return None
        raise
    return directory


def forget_parts(part: Part, warehouse: Warehouse) -> None:
    """Removes what the warehouse keeps of the parts of a run that is complete."""
    archives = Archives(warehouse.store())
    for each in Part.all_of(part.run_id, part.count):
        archives.remove(str(each))


def _merge(store: Store, versions: Mapping[Part, str], directory: RunDirectory) -> None:
    with scratch_folder() as scratch:
        parts = [fetch_archive(store, str(part), version, scratch) for part, version in versions.items()]
        _check_same(parts)
        joined = RunDirectory(scratch / "joined")
        joined.path.mkdir()
        join_parts(parts, joined)
        take_over(joined, directory)
        _warn_of_other_code(parts)
    told = directory.read_metadata()
    logger.info(
        "Run %s is joined from its %d parts: %s, %d of %d rollouts scored, average reward %s, in %s",
        directory.run_id, len(parts), told["status"], told["scored"], told["rollouts"], told["avg_reward"],
        directory.path,
    )  # fmt: skip


def _check_same(parts: Sequence[RunDirectory]) -> None:
    """Makes sure that parts are of one run: of the same settings, and of the same list of examples."""
    first = parts[0].read_config()
    asked = {name: value for name, value in saved_config(parts[0]).identity().items() if name != "part"}
    asked |= {name: first[name] for name in ("whole", "env_version")}
    for part in parts[1:]:
        if found := differences(part.read_config(), asked):
            fields = "; ".join(f"{name}: {mine!r} and {others!r}" for name, (mine, others) in found.items())
            raise RunDirectoryError(f"{part.run_id} and {parts[0].run_id} are of different runs: {fields}")


def _warn_of_other_code(parts: Sequence[RunDirectory]) -> None:
    known = {part.read_metadata()["version_info"].get("env_hash") for part in parts}
    if len(known) > 1:
        logger.warning("The parts are of different files of the environment: %s", ", ".join(sorted(map(str, known))))
