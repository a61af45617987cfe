"""``prune``: old runs out of the warehouse, as a Prefect flow, which shows first what would go.

Run it::

    nightjar up --detach
    export PREFECT_API_URL=http://127.0.0.1:4200/api
    prefect deployment run prune/prune -p older_than=180d -p keep_last=5
    prefect deployment run prune/prune -p older_than=180d -p keep_last=5 -p dry_run=false
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from prefect import State, flow
from prefect.states import Completed
from pydantic import Field

from flows.endings import refused
from flows.named_blocks import WarehouseName, warehouse_location
from flows.naming import named_after
from flows.run_log import nightjar_log_in_run_log
from nightjar import __version__
from nightjar.errors import ConfigError, NightjarError
from nightjar.warehouse import backend
from nightjar.warehouse.pruning import Criteria, parse_age
from tasks import upkeep as tasks


@flow(name="prune", version=__version__, flow_run_name=named_after("older_than", "env", "model"), persist_result=False)
async def prune(
    older_than: str = "",
    env: str = "",
    model: str = "",
    status: str = "",
    keep_last: Annotated[int, Field(ge=0)] = 0,
    dry_run: bool = True,
    warehouse: WarehouseName = "",
) -> State[Any]:
    """Removes runs that meet all that is given; their run directories stay, and publishing one again brings it back.

    Args:
        older_than: Runs that started so long ago: 12h, 180d, 26w, 2y.
        env: Runs of this environment.
        model: Runs of this model.
        status: Runs of this status, such as failed.
        keep_last: So many runs of every environment and model stay: the newest, quick and failed ones last.
        dry_run: Show what would go, and remove nothing.
        warehouse: Where runs are, as for evaluate.

    Returns:
        Completed, with the number of runs; a table artifact lists them.
    """
    nightjar_log_in_run_log()
    try:
        if not any((older_than, env, model, status, keep_last)):
            raise ConfigError("Say which runs are to go: older_than, env, model, status or keep_last")
        before = datetime.now(UTC) - parse_age(older_than) if older_than else None
        store = backend.open_store(await warehouse_location(warehouse))
        criteria = Criteria(before, env or None, model or None, status or None, keep_last)
        count = await tasks.prune(store, criteria, dry_run=dry_run)
    except NightjarError as error:
        return refused(error)
    done = "would go: dry_run is on, and nothing was removed" if dry_run else "were removed"
    return Completed(message=f"{count:,} runs {done}", data=count)
