"""Runs an evaluation from the command line as a Prefect flow run, in this process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from nightjar.config import RunConfig
from nightjar.errors import RunError
from nightjar.evaluation import Outcome, Run, watcher
from nightjar.hosting.server import SETTINGS
from nightjar.warehouse import Warehouse, resolve_warehouse

_FLAT = frozenset(
    {
        "env_id", "model", "base_url", "api_key_var", "api_client_type", "num_examples", "rollouts_per_example",
        "env_args", "sampling_args", "max_concurrent", "max_retries",
    }
)  # fmt: skip
"""The fields of a configuration that are parameters of the flow; the others travel as ``further``."""


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
    fields = config.model_dump(mode="json")
    try:
        await evaluate(
            **{name: fields[name] for name in _FLAT},
            further={name: value for name, value in fields.items() if name not in _FLAT},
            resume=resume or "",
            output_dir=str(output_dir or ""),
            warehouse="" if warehouse == resolve_warehouse() else warehouse,
        )
    except (RunError, asyncio.CancelledError):
        if not opened or opened[0].summary is None:
            raise
    return Outcome.of(opened[0], Warehouse(warehouse))
