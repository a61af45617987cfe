"""``rescore_on_dask``: scores a run again on a Dask cluster, for rubrics that need many CPUs.

The new run consists of parts, each a Prefect task on a Dask worker. The worker opens the run directory, loads the
environment and scores its examples; the last part to end joins them. Only text is sent to workers and back.

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
from nightjar.core.extras import import_extra
from nightjar.core.parts import Part
from nightjar.engine.runs import RunDirectory, new_run_id
from nightjar.evaluation import run_stages
from nightjar.evaluation.loading import load_rescored
from nightjar.tasks.sent_environments import receive
from nightjar.warehouse import Warehouse

_USER = "nightjar eval rescore --dask"


@task(task_run_name="rescore {part}", cache_policy=NO_CACHE, persist_result=False)
def rescore_part(source: str, part: str, settings: dict[str, Any], warehouse: str) -> None:
    """Scores a part of a run again, and publishes it."""
    directory = RunDirectory(Path(source))
    asyncio.run(receive(directory.read_config().get("env_source") or ""))
    opened = load_rescored(directory, part=Part.of(part), **settings)
    asyncio.run(run_stages(opened, Warehouse(warehouse)))


def rescore_on_dask(source: RunDirectory, cluster: str, settings: Mapping[str, Any], warehouse: str) -> RunDirectory:
    """Scores the rollouts of a run again, one part per worker, and returns the new run directory.

    Workers must see ``source`` under the same path, and reach ``warehouse``. ``cluster`` is the address of a scheduler,
    or the number of local workers to start. ``settings`` are further arguments of ``load_rescored``.
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
    """Yields a scheduler's address and its number of workers; starts both if ``cluster`` is a number."""
    distributed = import_extra("distributed", "dask", _USER)
    if cluster.isdigit():
        local = distributed.LocalCluster(n_workers=int(cluster), threads_per_worker=1, dashboard_address=None)
        with local:
            yield local.scheduler_address, int(cluster)
    else:
        with distributed.Client(cluster) as client:
            yield cluster, len(client.nthreads())
