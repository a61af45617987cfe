"""Runs an evaluation from the command line as a Prefect flow run, in this process."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from nightjar.config import RunConfig
from nightjar.engine import Run, runs_under_way
from nightjar.errors import ServiceError
from nightjar.evaluation import Outcome
from nightjar.home import VIEW_URL
from nightjar.hosting.server import SETTINGS
from nightjar.hosting.state import read_state
from nightjar.hosting.temporary_server import temporary_server
from nightjar.packages import EnvironmentId
from nightjar.warehouse import Warehouse, resolve_warehouse

_ON_A_TERMINAL = {
    "PREFECT_CLIENT_MAX_RETRIES": "2",  # a person waits: for a server that goes away 6 s, not 62
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # errors are said once, in a line
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # else each event that cannot be sent is logged, at length
}
_LOOK_SECONDS = 0.1


async def evaluate_as_flow(
    config: RunConfig,
    warehouse: str,
    output_dir: Path | None,
    resume: str | None,
    api_url: str | None,
    where: str = "",
) -> Outcome:
    """Runs the flow ``evaluate`` and returns how the run ended, also where the server has gone away meanwhile.

    Args:
        config: what to run.
        warehouse: where to publish.
        output_dir, resume, where: as for ``load_env``.
        api_url: Prefect's server; None for a temporary one.

    Raises:
        NightjarError: the run could not be opened or published.
    """
    for name, value in {**SETTINGS, **_ON_A_TERMINAL}.items():
        os.environ.setdefault(name, value)
    if (up := read_state()) and up.view_url and up.api_url == api_url:
        os.environ.setdefault(VIEW_URL, up.view_url)
    server = None if api_url else temporary_server()
    os.environ["PREFECT_API_URL"] = api_url or temporary_server().api_url
    from prefect import State

    from flows.evaluation import evaluate
    from tasks.away import SERVER_IS_AWAY, note

    logging.raiseExceptions = False  # else Prefect's handler says on stderr that it cannot send the log
    if server is not None:  # it started while Prefect was imported
        await asyncio.to_thread(server.wait)
    looking = asyncio.get_running_loop().create_task(_run_of(config))
    try:
        state: State[Outcome] = await evaluate(
            **config.model_dump(mode="json"),
            allow_sandbox_access=True,  # who types the command runs the environment's code as themselves
            resume=resume or "",
            where=where,
            output_dir=str(output_dir or ""),
            warehouse="" if warehouse == resolve_warehouse() else warehouse,
            return_state=True,
        )
        ended = await state.aresult(raise_on_failure=False)
    except SERVER_IS_AWAY as error:
        ended = error
    finally:
        looking.cancel()
    if isinstance(ended, SERVER_IS_AWAY):
        note(away=True)
        return _without_server(looking.result() if looking.done() else None, warehouse, ended)
    if isinstance(ended, BaseException):
        raise ended
    return ended


async def _run_of(config: RunConfig) -> Run:
    """Waits for the run of a configuration: a suite has several under way, and each of another name or environment."""
    asked = EnvironmentId.parse(config.env_id).listed, config.model, config.name
    while True:
        for run in runs_under_way():
            said = run.metadata
            if (EnvironmentId.parse(said.env_id).listed, said.model, said.name) == asked:
                return run
        await asyncio.sleep(_LOOK_SECONDS)  # it may be opened in another thread


def _without_server(run: Run | None, warehouse: str, error: BaseException) -> Outcome:
    """Returns how a run ended that Prefect could not be told of."""
    if run is None or run.metadata.summary is None:
        raise ServiceError(f"Prefect's server went away before the run had ended: {error}") from error
    return Outcome.of(run, Warehouse(warehouse))
