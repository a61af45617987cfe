"""A run and its warehouse: whether it can be published, asked before it is paid for, and the publishing itself."""

from __future__ import annotations

import logging
import shlex
from datetime import UTC, datetime

from nightjar.errors import RunDirectoryError, WarehouseError
from nightjar.runs import RunDirectory
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


def publish(directory: RunDirectory, warehouse: Warehouse) -> PublishReport:
    """Publishes a run directory into the warehouse, all of it or nothing, and notes in its metadata that it is there.

    Raises:
        WarehouseError: it cannot be written; the message has the command that publishes the run later.
    """
    try:
        report = warehouse.publish(directory.path)
    except (WarehouseError, OSError) as error:
        reason = str(error).rstrip(".")
        raise WarehouseError(
            f"{reason}. The results are in {directory.path}. To publish them later: "
            f"{_publish_command(directory, warehouse)}"
        ) from error
    published_at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        directory.write_metadata(directory.read_metadata() | {"published_at": published_at})
    except RunDirectoryError as error:
        logger.warning("The run is published, but cannot be noted as such: %s", error)
    return report


def _publish_command(directory: RunDirectory, warehouse: Warehouse) -> str:
    command = ["nightjar", "publish", str(directory.path)]
    if has_secret(warehouse.location):
        return f"{shlex.join(command)}, with this --warehouse"
    is_default = warehouse.location == shown(resolve_warehouse())
    return shlex.join(command if is_default else [*command, "--warehouse", warehouse.location])
