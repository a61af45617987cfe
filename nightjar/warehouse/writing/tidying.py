"""Leaves a warehouse in order after something was published."""

from __future__ import annotations

import logging

from nightjar.errors import WarehouseError
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.packing import pack_as_needed

_log = logging.getLogger(__name__)


def tidy(store: Store) -> None:
    """Packs and replaces the snapshot; warns where that fails, because the run is there already."""
    try:
        if not store.exists():
            return
        pack_as_needed(store)
    except (OSError, WarehouseError) as error:
        _log.warning("The run is published, but small segments were left unpacked: %s", error)
    write_snapshot(store)
