"""``publish-run``: a run directory on the worker's machine into the warehouse, as a Prefect flow.

Run it::

    nightjar up --detach
    export PREFECT_API_URL=http://127.0.0.1:4200/api
    prefect deployment run publish-run/publish-run -p run_dir=outputs/evals/gsm8k--gpt-4.1-mini/0a1b2c3d4e5f
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from prefect import State, flow
from prefect.states import Completed
from pydantic import Field

from flows.endings import refused
from flows.named_blocks import WarehouseName, warehouse_location
from flows.naming import named_after
from flows.run_log import nightjar_log_in_run_log
from nightjar import __version__
from nightjar.errors import NightjarError
from nightjar.evaluation.publishing import publish_directory
from nightjar.warehouse import Warehouse


@flow(name="publish-run", version=__version__, flow_run_name=named_after("run_dir"), persist_result=False)
async def publish_run(run_dir: Annotated[str, Field(min_length=1)], warehouse: WarehouseName = "") -> State[Any]:
    """Publishes a run directory; publishing twice changes nothing. One whose process is gone is added up before.

    Args:
        run_dir: The run directory, on the worker's machine.
        warehouse: Where it goes, as for evaluate.

    Returns:
        Completed, with what the warehouse holds of it; Failed where it cannot be read, or the warehouse not be written.
    """
    nightjar_log_in_run_log()
    try:
        target = Warehouse(await warehouse_location(warehouse))
        report = await asyncio.to_thread(publish_directory, Path(run_dir), target)
    except NightjarError as error:
        return refused(error)
    return Completed(message=report.line(target.location))
