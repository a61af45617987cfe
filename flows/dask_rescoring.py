"""``rescore_on_dask``: a run scored again by the workers of a Dask cluster, for rubrics that need many CPUs.

The new run is done in parts, each a Prefect task on a Dask worker: that opens the run directory itself, loads the
environment itself and scores its examples; the last to end joins them. What goes to a worker and comes back is text.

Run it::

    pip install 'nightjar-evals[dask]'
    nightjar eval rescore 0a1b2c3d4e5f --dask 4
    nightjar eval rescore 0a1b2c3d4e5f --dask tcp://scheduler:8786
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from nightjar import __version__
from nightjar.evaluation import carry_out
from nightjar.evaluation.rescoring import load_rescored
from nightjar.packages.extras import import_extra
from nightjar.parts import Part
from nightjar.runs import RunDirectory, new_run_id
from nightjar.warehouse import Warehouse
from tasks.sent_environments import receive

_USER = "nightjar eval rescore --dask"


@task(task_run_name="rescore {part}", cache_policy=NO_CACHE, persist_result=False)
def rescore_part(source: str, part: str, settings: dict[str, Any], warehouse: str) -> None:
    """Scores a part of a run again, and publishes it."""
    directory = RunDirectory(Path(source))
    asyncio.run(receive(directory.read_config().get("env_source") or ""))
    opened = load_rescored(directory, part=Part.of(part), **settings)
    asyncio.run(carry_out(opened, Warehouse(warehouse)))


def rescore_on_dask(source: RunDirectory, cluster: str, settings: Mapping[str, Any], warehouse: str) -> RunDirectory:
    """Scores the rollouts of a run again, a part on each worker of a cluster.

    Args:
        source: the run directory, which the workers see under the same path.
        cluster: the address of a scheduler, or how many workers to start on this machine.
        settings: further arguments of ``load_rescored``.
        warehouse: where the run is published; the workers reach it.

    Returns:
        The run directory of the new run.

    Raises:
        ImportError: the packages of Dask are not installed.
        NightjarError: a part could not be scored.
    """
    runner = import_extra("prefect_dask", "dask", _USER).DaskTaskRunner
    path, run_id = source.path.absolute(), new_run_id()
    with _workers(cluster) as (address, count):

        @flow(name="rescore-on-dask", version=__version__, task_runner=runner(address=address), persist_result=False)
        def rescore() -> None:
            parts = Part.all_of(run_id, count)
            scored = [rescore_part.submit(str(path), str(part), dict(settings), warehouse) for part in parts]
            for part in scored:
                part.result()

        rescore()
    return RunDirectory(path.parent / run_id)


@contextmanager
def _workers(cluster: str) -> Iterator[tuple[str, int]]:
    """Gives the address of a scheduler, and how many workers it has; starts both where a number is asked for."""
    distributed = import_extra("distributed", "dask", _USER)
    if cluster.isdigit():
        local = distributed.LocalCluster(n_workers=int(cluster), threads_per_worker=1, dashboard_address=None)
        with local:
            yield local.scheduler_address, int(cluster)
    else:
        with distributed.Client(cluster) as client:
            yield cluster, len(client.nthreads())
