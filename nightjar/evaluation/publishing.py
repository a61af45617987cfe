"""A run and its warehouse: whether it can be published, asked before it is paid for, and the publishing itself."""

from __future__ import annotations

import logging
import os
import shlex
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from nightjar.config import RunConfig
from nightjar.errors import RunDirectoryError, RunError, WarehouseError
from nightjar.parts import Part
from nightjar.runs import RunDirectory, end_crashed, runs_folder
from nightjar.warehouse import PublishReport, Warehouse, resolve_warehouse
from nightjar.warehouse.location import has_secret, shown

logger = logging.getLogger(__name__)


def check_warehouse(warehouse: Warehouse) -> None:
    """Finds out, before a run is paid for, whether it can be published.

    Raises:
        WarehouseError: it cannot; the message says why.
    """
    try:
        warehouse.check_writable()
    except (WarehouseError, OSError) as error:
        raise WarehouseError(f"The run was not started. {error}") from error


def fetch_part(config: RunConfig, warehouse: Warehouse, output_dir: Path | None) -> None:
    """Brings here what a part of a run has done elsewhere; does nothing for a whole run.

    Args:
        config: what to run.
        warehouse: where its parts are kept.
        output_dir: as for ``load_env``.

    Raises:
        ConfigError: all parts are joined already.
        RunError: what is kept of the part is damaged, or the run directory here is.
        WarehouseError: the warehouse cannot be read, or has tables.
    """
    if (part := config.part_of_run) is not None:
        from nightjar.evaluation.merging import bring_part

        folder = runs_folder(config.env_id, config.model, output_dir, config.environments_dir)
        bring_part(part, RunDirectory(folder / str(part)), warehouse)


def publish(directory: RunDirectory, warehouse: Warehouse) -> PublishReport:
    """Publishes a run directory into the warehouse, all of it or nothing, and notes in its metadata that it is there.

    A part of a run goes there with its run directory; the last to come makes them one run, see ``merging``.

    Raises:
        WarehouseError: it cannot be written; the message has the command that publishes the run later.
    """
    part = Part.of(directory.run_id)
    try:
        report = _publish_part(part, directory, warehouse) if part else warehouse.publish(directory.path)
    except (WarehouseError, RunError, OSError) as error:
        reason = str(error).rstrip(".")
        raise WarehouseError(
            f"{reason}. The results are in {directory.path}. To publish them later: "
            f"{_publish_command(directory, warehouse)}"
        ) from error
    note_published(directory)
    return report


def _publish_part(part: Part, directory: RunDirectory, warehouse: Warehouse) -> PublishReport:
    from nightjar.evaluation.archiving import keep_archive
    from nightjar.evaluation.merging import forget_parts, is_merged, merge_parts

    if is_merged(part, warehouse):
        told = directory.read_metadata()
        counts = told.get("scored", 0) + told.get("failed", 0), told.get("failed", 0), 0
        return PublishReport(directory.run_id, *counts, is_new=False, seconds=0)
    keep_archive(directory, warehouse.store())
    report = warehouse.publish(directory.path)
    run = merge_parts(part, directory.path.parent, warehouse)
    if run is not None:
        publish(run, warehouse)
        if run.read_metadata()["status"] == "completed":
            forget_parts(part, warehouse)
    return report


def note_published(directory: RunDirectory) -> None:
    """Notes in the metadata of a run that it is in the warehouse; warns where that cannot be written."""
    published_at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        directory.write_metadata(directory.read_metadata() | {"published_at": published_at})
    except RunDirectoryError as error:
        logger.warning("The run is published, but cannot be noted as such: %s", error)


def publish_directory(run_dir: Path, warehouse: Warehouse) -> PublishReport:
    """Publishes a run directory that no process writes; a run whose process is gone is added up before, as crashed.

    Raises:
        RunDirectoryError: there is no run, or a process writes it.
        WarehouseError: as for ``publish``.
    """
    directory = RunDirectory(run_dir)
    directory.read_metadata()
    can_write = os.access(run_dir, os.W_OK)
    with directory if can_write else nullcontext():
        if can_write:
            end_crashed(directory)
        return publish(directory, warehouse)


def _publish_command(directory: RunDirectory, warehouse: Warehouse) -> str:
    command = ["nightjar", "publish", str(directory.path)]
    if has_secret(warehouse.location):
        return f"{shlex.join(command)}, with this --warehouse"
    is_default = warehouse.location == shown(resolve_warehouse())
    return shlex.join(command if is_default else [*command, "--warehouse", warehouse.location])
