"""Publishes runs into the warehouse, and checks beforehand that this is possible."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from nightjar.core.parts import Part
from nightjar.engine.runs import RunDirectory, end_crashed, give_new_id, runs_folder
from nightjar.errors import RunConflictError, RunDirectoryError, RunError, WarehouseError
from nightjar.evaluation.config import RunConfig
from nightjar.evaluation.costs import cost_of
from nightjar.warehouse import PublishReport, Warehouse
from nightjar.warehouse.location import publish_command
from nightjar.warehouse.writing.conflicts import check_publishable

logger = logging.getLogger(__name__)


def check_warehouse(warehouse: Warehouse) -> None:
    """Raises ``WarehouseError`` if the warehouse cannot be written, before any request is paid for."""
    try:
        warehouse.check_writable()
    except (WarehouseError, OSError) as error:
        raise WarehouseError(f"The run was not started. {error}") from error


def fetch_part(config: RunConfig, warehouse: Warehouse, output_dir: Path | None) -> None:
    if (part := config.part_of_run) is not None:
        from nightjar.evaluation.part_runs import bring_part

        folder = runs_folder(config.env_id, config.model, output_dir, config.environments_dir)
        bring_part(part, RunDirectory(folder / str(part)), warehouse)


def publish(directory: RunDirectory, warehouse: Warehouse) -> PublishReport:
    """Publishes a run directory in one transaction; raises ``RunConflictError`` if its id belongs to another run."""
    part = Part.of(directory.run_id)
    try:
        report = _publish_part(part, directory, warehouse) if part else warehouse.publish(directory.path)
    except RunConflictError:
        raise
    except (WarehouseError, RunError, OSError) as error:
        reason = str(error).rstrip(".")
        command = publish_command(directory.path, warehouse.location)
        raise WarehouseError(
            f"{reason}. The results are in {directory.path}. To publish them later: {command}"
        ) from error
    note_published(directory, warehouse)
    return report


def _publish_part(part: Part, directory: RunDirectory, warehouse: Warehouse) -> PublishReport:
    from nightjar.evaluation.part_runs import forget_parts, is_merged, keep_archive, merge_parts

    if is_merged(part, warehouse):
        metadata = directory.read_metadata()
        counts = metadata.get("scored", 0) + metadata.get("failed", 0), metadata.get("failed", 0), 0
        return PublishReport(directory.run_id, *counts, is_new=False, seconds=0)
    check_publishable(warehouse.store(), directory)
    keep_archive(directory, warehouse.store())
    report = warehouse.publish(directory.path)
    run = merge_parts(part, directory.path.parent, warehouse)
    if run is not None:
        publish(run, warehouse)
        if run.read_metadata()["status"] == "completed":
            forget_parts(part, warehouse)
    return report


def note_published(directory: RunDirectory, warehouse: Warehouse) -> None:
    """Adds the time of the publish to ``metadata.json``, and the cost of the run if the price is known."""
    published_at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        metadata = directory.read_metadata()
        cost = cost_of(metadata, warehouse)
        directory.write_metadata(
            {**metadata, "published_at": published_at, **({"cost": cost} if cost is not None else {})}
        )
    except RunDirectoryError as error:
        logger.warning("The run is published, but its metadata cannot be updated: %s", error)


def publish_directory(run_dir: Path, warehouse: Warehouse, *, has_new_id: bool = False) -> PublishReport:
    """Publishes a run directory; a crashed run is aggregated first. If needed, the run gets a new id and keeps it."""
    directory = RunDirectory(run_dir)
    directory.read_metadata()
    can_write = os.access(run_dir, os.W_OK)
    with directory if can_write or has_new_id else nullcontext():
        if can_write:
            end_crashed(directory)
        if has_new_id:
            give_new_id(directory)
        return publish(directory, warehouse)
