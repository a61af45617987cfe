"""Runs Prefect's worker so that runs start soon: ``python -P -m nightjar.hosting.worker prefect worker start …``.

For each run, a plain worker imports Prefect twice: in a process that prepares the code of the deployment, and then in
the process of the run. Nightjar's deployments are installed modules, which need no preparation. Their runs use a
process that has imported Prefect and Nightjar before (``spare_process``). Other deployments run as in a plain worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from prefect.cli import app
from prefect.runner import _starter_engine
from prefect.settings import get_current_settings
from prefect.utilities.processutils import command_to_string, run_process
from prefect.workers.process import ProcessWorker

from nightjar.hosting.server import FOLDER_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import Process

_ENGINE = [sys.executable, "-m", "prefect.engine"]
_SPARE = [sys.executable, "-m", "nightjar.hosting.spare_process"]
_PAUSE_SECONDS = 5.0
"""A new spare process starts when the run before has had this time for its own start."""


class SpareProcess:
    """The process that is ready for the next run, if there is one."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._starting: asyncio.Task[None] | None = None

    def prepare(self, pause_seconds: float = 0.0) -> None:
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._prepare(pause_seconds))

    async def take(self, environment: Mapping[str, str], folder: object) -> Process:
        """Returns a process that runs Prefect's engine in a folder, with an environment."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            process = await _start(environment, folder)
        request = {"command": _ENGINE, "environment": dict(environment), "folder": str(folder or Path.cwd())}
        assert process.stdin is not None  # it was started with a pipe
        with suppress(anyio.BrokenResourceError):  # it was killed, and counts as a run that crashed
            await process.stdin.send(json.dumps(request).encode())
            await process.stdin.aclose()
        self.prepare(_PAUSE_SECONDS)
        return process

    async def _prepare(self, pause_seconds: float) -> None:
        await asyncio.sleep(pause_seconds)
        if self._process is None or self._process.returncode is not None:
            settings = get_current_settings().to_environment_variables(exclude_unset=True)
            self._process = await _start({**os.environ, **settings}, None)


async def _start(environment: Mapping[str, str], folder: Any) -> Process:
    return await anyio.open_process(_SPARE, stdout=None, stderr=None, env=environment, cwd=folder)


_spare = SpareProcess()
_run = ProcessWorker.run
_enter = ProcessWorker.__aenter__


async def _enter_with_spare(worker: ProcessWorker) -> ProcessWorker:
    entered = await _enter(worker)
    _spare.prepare()
    return entered


async def _run_unprepared(worker: ProcessWorker, flow_run: Any, configuration: Any, task_status: Any = None) -> Any:
    """Runs a deployment, without the preparation of its code if it is one of Nightjar's."""
    if FOLDER_LABEL in configuration.labels and not configuration._command_configured:  # noqa: SLF001
        configuration.command = command_to_string(_ENGINE)
        configuration._command_configured = True  # noqa: SLF001
    return await _run(worker, flow_run, configuration, task_status)


async def _run_in_spare(
    command: Sequence[str],
    *,
    task_status: Any,
    task_status_handler: Any,
    env: Mapping[str, str],
    cwd: Any,
    **others: Any,
) -> Process:
    """Does for the engine what Prefect's ``run_process`` does. Output goes straight to that of the worker."""
    if command != _ENGINE:
        return await run_process(
            list(command),
            task_status=task_status,
            task_status_handler=task_status_handler,
            env=env,
            cwd=cwd,
            **others,
        )
    process = await _spare.take(env, cwd)
    try:
        task_status.started(task_status_handler(process))
        await process.wait()
    finally:
        with suppress(OSError):
            process.terminate()
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return process


def main() -> None:
    setattr(ProcessWorker, "__aenter__", _enter_with_spare)  # noqa: B010 - typed as a fixed method
    setattr(ProcessWorker, "run", _run_unprepared)  # noqa: B010
    setattr(_starter_engine, "run_process", _run_in_spare)  # noqa: B010
    sys.argv = sys.argv[1:]
    app()


if __name__ == "__main__":
    main()
