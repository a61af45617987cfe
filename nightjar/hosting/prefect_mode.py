"""Runs an evaluation from the command line as a Prefect flow run, in this process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from nightjar.config import RunConfig
from nightjar.errors import RunError
from nightjar.evaluation import Outcome, Run, watcher
from nightjar.warehouse import Warehouse, resolve_warehouse

SETTINGS = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",  # the display shows how far the run is
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # log lines of threads that belong to no run
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # logs an error where there is no network
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # a loaded machine takes longer than 20 s
}


async def evaluate_as_flow(
    config: RunConfig, warehouse: str, output_dir: Path | None, resume: str | None, api_url: str | None
) -> Outcome:
    """Runs the flow ``evaluate`` and returns how the run ended.

    Args:
        config: what to run.
        warehouse: where to publish.
        output_dir, resume: as for ``stages.load_env``.
        api_url: Prefect's server; None for a temporary one.

    Raises:
        NightjarError: the run could not be opened or published.
    """
    if api_url is not None:
        os.environ.setdefault("PREFECT_API_URL", api_url)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from flows.evaluation import evaluate

    opened: list[Run] = []
    show = watcher.get(None)

    def watch(run: Run) -> None:
        opened.append(run)
        if show is not None:
            show(run)

    watcher.set(watch)
    try:
        await evaluate(
            **config.model_dump(mode="json"),
            resume=resume or "",
            output_dir=str(output_dir or ""),
            warehouse="" if warehouse == resolve_warehouse() else warehouse,
        )
    except (RunError, asyncio.CancelledError):
        if not opened or opened[0].summary is None:
            raise
    return Outcome.of(opened[0], Warehouse(warehouse))
