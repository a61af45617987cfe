"""``upkeep``: checks the warehouse for damage, and merges its small segments.

Run it::

    nightjar up --detach
    export PREFECT_API_URL=http://127.0.0.1:4200/api
    prefect deployment run upkeep/upkeep
"""

from __future__ import annotations

from typing import Any

from prefect import State
from prefect.states import Completed, Failed

from nightjar import __version__
from nightjar.flows.checked_flow import checked_flow
from nightjar.flows.flow_runs import logged, named_after
from nightjar.flows.named_blocks import WarehouseName, warehouse_location
from nightjar.tasks import warehouse as tasks
from nightjar.warehouse import backend


@checked_flow("upkeep", version=__version__, flow_run_name=named_after("warehouse"), persist_result=False)
@logged
async def upkeep(warehouse: WarehouseName = "", deep: bool = False) -> State[Any]:
    """Checks the warehouse, and merges its small segments if nothing needs action. Readers and publishers can continue.

    Args:
        warehouse: Warehouse, as for evaluate. In an object store, segments are merged, but nothing is checked.
        deep: Read all data, instead of only the metadata.

    Returns:
        Completed. If something needs action: Failed, and the message says what to do. An artifact lists all findings.
    """
    store = backend.open_store(await warehouse_location(warehouse))
    store.require()
    to_do = await tasks.examine(store, deep=deep)
    if to_do:
        return Failed(message="\n".join(f"{finding.what} → {finding.remedy}" for finding in to_do))
    return Completed(message=await tasks.compact(store))
