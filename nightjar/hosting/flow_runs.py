"""Runs an evaluation from the command line as a Prefect flow run, in this process."""

from __future__ import annotations

import os
from pathlib import Path

from nightjar.config import RunConfig
from nightjar.evaluation import Outcome
from nightjar.hosting.server import SETTINGS
from nightjar.warehouse import resolve_warehouse


async def evaluate_as_flow(
    config: RunConfig, warehouse: str, output_dir: Path | None, resume: str | None, api_url: str | None
) -> Outcome:
    """Runs the flow ``evaluate`` and returns how the run ended.

    Args:
        config: what to run.
        warehouse: where to publish.
        output_dir, resume: as for ``load_env``.
        api_url: Prefect's server; None for a temporary one.

    Raises:
        NightjarError: the run could not be opened or published.
    """
    if api_url is not None:
        os.environ["PREFECT_API_URL"] = api_url
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from prefect import State

    from flows.evaluation import evaluate

    state: State[Outcome] = await evaluate(
        **config.model_dump(mode="json"),
        resume=resume or "",
        output_dir=str(output_dir or ""),
        warehouse="" if warehouse == resolve_warehouse() else warehouse,
        return_state=True,
    )
    ended = await state.aresult(raise_on_failure=False)
    if isinstance(ended, BaseException):
        raise ended
    return ended
