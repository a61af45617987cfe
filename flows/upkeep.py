"""``upkeep``: the warehouse examined and packed, as a Prefect flow; it fails where something is to be done.

Run it::

    nightjar up --detach
    export PREFECT_API_URL=http://127.0.0.1:4200/api
    prefect deployment run upkeep/upkeep
"""

from __future__ import annotations

from typing import Any

from prefect import State, flow
from prefect.states import Completed, Failed

from flows.endings import refused
from flows.named_blocks import WarehouseName, warehouse_location
from flows.naming import named_after
from flows.run_log import nightjar_log_in_run_log
from nightjar import __version__
from nightjar.errors import NightjarError
from nightjar.warehouse import backend
from tasks import upkeep as tasks


@flow(name="upkeep", version=__version__, flow_run_name=named_after("warehouse"), persist_result=False)
async def upkeep(warehouse: WarehouseName = "", deep: bool = False) -> State[Any]:
    """Examines the warehouse, and merges its small segments where all is well; readers and publishers go on meanwhile.

    Args:
        warehouse: Which one, as for evaluate. One in an object store is merged, and not examined.
        deep: Read all data, not only what identifies it.

    Returns:
        Completed; Failed where something needs action, with what to do. An artifact has all that was found.
    """
    nightjar_log_in_run_log()
    try:
        store = backend.open_store(await warehouse_location(warehouse))
        store.require()
        to_do = await tasks.examine(store, deep=deep)
        if to_do:
            return Failed(message="\n".join(f"{finding.what} → {finding.remedy}" for finding in to_do))
        return Completed(message=await tasks.compact(store))
    except NightjarError as error:
        return refused(error)
