"""A run and its warehouse: whether it can be published, asked before it is paid for, and the publishing itself."""

from __future__ import annotations

import logging
import shlex
from datetime import UTC, datetime

from nightjar.errors import RunDirectoryError, RunError, WarehouseError
from nightjar.parts import Part
from nightjar.runs import RunDirectory
from nightjar.warehouse import PublishReport, Warehouse, resolve_warehouse
from nightjar.warehouse.location import has_secret, shown

logger = logging.getLogger(__name__)


def check_warehouse(warehouse: Warehouse, *, joins_parts: bool = False) -> None:
    """Finds out, before a run is paid for, whether it can be published.

    Args:
        warehouse: where to.
        joins_parts: whether the run is a part of one, which only a folder or an object store keeps.

    Raises:
        WarehouseError: it cannot; the message says why.
    """
    try:
        warehouse.check_writable()
        if joins_parts:
            warehouse.store()
    except (WarehouseError, OSError) as error:
        raise WarehouseError(f"The run was not started. {error}") from error


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
        counts = told["scored"] + told["failed"], told["failed"], 0
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


def _publish_command(directory: RunDirectory, warehouse: Warehouse) -> str:
    command = ["nightjar", "publish", str(directory.path)]
    if has_secret(warehouse.location):
        return f"{shlex.join(command)}, with this --warehouse"
    is_default = warehouse.location == shown(resolve_warehouse())
    return shlex.join(command if is_default else [*command, "--warehouse", warehouse.location])
