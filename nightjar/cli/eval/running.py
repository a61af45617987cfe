"""Runs an evaluation from the command line: where, with what on the screen, and with which exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, TypeAlias

import typer

from nightjar.calling import leave_threads_behind
from nightjar.cli.eval.display import RunDisplay, show_outcome
from nightjar.cli.eval.process_memory import limit_memory
from nightjar.cli.terminal import echo
from nightjar.config import RunConfig
from nightjar.errors import RunError
from nightjar.evaluation import Outcome, check_warehouse, evaluate, stopped_by_signals
from nightjar.hosting.flow_runs import evaluate_as_flow
from nightjar.hosting.server import find_prefect_api
from nightjar.runs import RunDirectory
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.location import refuse_secret

Mode: TypeAlias = Literal["auto", "prefect", "direct"]


def run(
    config: RunConfig,
    mode: Mode,
    output_dir: Path | None = None,
    resume: str | None = None,
    warehouse: str | None = None,
    prefect_url: str | None = None,
) -> Outcome:
    """Runs an evaluation as a Prefect flow or in this process, and shows how far it is.

    Args:
        config: what to run.
        mode: ``auto`` takes Prefect where its server answers.
        output_dir, resume: as for ``stages.load_env``.
        warehouse: its location; None for the default.
        prefect_url: of Prefect's server; None for the one that is configured, or that 'nightjar up' runs.
    """
    limit_memory()
    location = resolve_warehouse(warehouse)
    api_url = None if mode == "direct" else find_prefect_api(prefect_url)
    if mode == "prefect" or api_url is not None:
        return _watched(lambda: _run_as_flow(config, location, output_dir, resume, api_url))
    if mode == "auto":
        echo(
            "No Prefect server is configured or was started by 'nightjar up': running in this process.",
            err=True,
        )
    return _watched(lambda: evaluate(config, warehouse=Warehouse(location), output_dir=output_dir, resume=resume))


async def _run_as_flow(
    config: RunConfig, location: str, output_dir: Path | None, resume: str | None, api_url: str | None
) -> Outcome:
    check_warehouse(Warehouse(location))
    if location != resolve_warehouse():
        refuse_secret(location)
    return await evaluate_as_flow(config, location, output_dir, resume, api_url)


def _watched(evaluation: Callable[[], Awaitable[Outcome]]) -> Outcome:
    async def body() -> Outcome:
        with RunDisplay():
            async with stopped_by_signals():
                try:
                    return await evaluation()
                finally:
                    leave_threads_behind()

    try:
        return asyncio.run(body())
    except (asyncio.CancelledError, KeyboardInterrupt):
        echo("Stopped. The same command with --resume goes on.", err=True)
        raise typer.Exit(130) from None


def finish(outcome: Outcome, as_json: bool) -> None:
    """Shows how a run ended, and leaves the process with its exit code: 0 when all is scored and published."""
    if as_json:
        echo(json.dumps({**RunDirectory(outcome.path).read_metadata(), "path": str(outcome.path)}, indent=2))
    else:
        show_outcome(outcome)
    if isinstance(outcome.error, RunError) and outcome.status != "cancelled":
        echo(f"Error: {outcome.error}", err=True)
    elif (first := next(iter(outcome.summary.error_examples.values()), None)) is not None:
        failed = f"{outcome.summary.failed} of {outcome.summary.rollouts} rollouts failed"
        echo(f"Error: {failed}. The first: {first.partition(chr(10))[0]}", err=True)
    if outcome.unpublished is not None:
        echo(f"Error: {outcome.unpublished}", err=True)
    raise typer.Exit(130 if outcome.status == "cancelled" else int(not outcome.is_complete))
