"""Copies a run from one warehouse into another, as a segment of its own."""

from __future__ import annotations

from contextlib import closing

from nightjar.errors import WarehouseError
from nightjar.scratch import scratch_folder
from nightjar.warehouse.database import connect_scratch, explained
from nightjar.warehouse.export.runs import ExportConnection
from nightjar.warehouse.reading.damage import damage_named, refuse_damaged
from nightjar.warehouse.storage.segments import KINDS, is_held, segment_id_of
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.publishing import write_files


def copy_run(source: Store, target: Store, run_id: str) -> bool:
    """Makes a warehouse hold a run as another does.

    Args:
        source, target: the two warehouses.
        run_id: the run.

    Returns:
        False where the target holds this content, or that of a later moment.

    Raises:
        WarehouseError: the run is not there, or damaged, or the target cannot be written.
    """
    catalog = source.catalog()
    holder, held = catalog.holders.get(run_id), target.catalog().holders.get(run_id)
    if holder is None:
        raise WarehouseError(f"No run {run_id!r} in {source}. See: nightjar sql 'FROM runs'")
    if is_held(held.versions[run_id] if held else None, holder.versions[run_id]):
        return False
    refuse_damaged(source, [holder])
    with (
        scratch_folder() as spill,
        damage_named(source),
        explained(f"Cannot read the warehouse {source}"),
        closing(connect_scratch(spill)) as connection,
        target.scratch() as scratch,
    ):
        ExportConnection(source, catalog, connection).narrow([run_id])
        segment = write_files(
            connection,
            scratch,
            segment_id=segment_id_of(run_id, holder.versions[run_id]),
            versions={run_id: holder.versions[run_id]},
            relations={kind: f"FROM segments.{kind}" for kind in KINDS},
        )
        target.commit(segment, scratch)
    return True
