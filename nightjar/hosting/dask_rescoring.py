"""Scores a run again on a Dask cluster, as a Prefect flow of this process, with a temporary server where none is."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from nightjar.errors import ConfigError
from nightjar.hosting.server import SETTINGS, find_prefect_api
from nightjar.hosting.temporary_server import temporary_server
from nightjar.runs import RunDirectory
from nightjar.warehouse import Warehouse
from nightjar.warehouse.location import refuse_secret


def rescore_with_dask(source: RunDirectory, cluster: str, settings: Mapping[str, Any], location: str) -> RunDirectory:
    """Scores the rollouts of a run again, a part on each worker, and returns the run directory of the new run.

    Args:
        source: the run directory.
        cluster: the address of a scheduler, or how many workers to start here.
        settings: further arguments of ``load_rescored``.
        location: of the warehouse where the new run is published.

    Raises:
        ConfigError: the packages of Dask are not installed, or the run cannot be scored so.
        RunError: a part could not be scored.
        WarehouseError: the warehouse cannot be written, or has tables.
    """
    warehouse = Warehouse(refuse_secret(location))
    warehouse.store()  # refuses tables, before anything is started
    reached = str(warehouse.folder.absolute()) if warehouse.folder else location
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("distributed").setLevel(logging.ERROR)
    api_url = find_prefect_api(None)
    os.environ["PREFECT_API_URL"] = api_url or temporary_server().api_url
    from flows.dask_rescoring import rescore_on_dask

    if api_url is None:
        temporary_server().wait()
    try:
        return rescore_on_dask(source, cluster, settings, reached)
    except ImportError as error:
        raise ConfigError(str(error)) from error
