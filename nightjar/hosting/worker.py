"""Runs Prefect's worker so that runs start soon: ``python -P -m nightjar.hosting.worker prefect worker start …``.

For each run, a plain worker imports Prefect twice: in a process that prepares the code of the deployment, and then in
the process of the run. Nightjar's deployments are installed modules, which need no preparation. Their runs use a
process that has imported Prefect and Nightjar before (``spare_process``). Other deployments run as in a plain worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from prefect.cli import app
from prefect.runner import _starter_engine
from prefect.runner._starter_engine import EngineCommandStarter
from prefect.settings import get_current_settings
from prefect.utilities.processutils import command_to_string, run_process
from prefect.workers import process as process_worker
from prefect.workers.process import ProcessWorker

from nightjar.hosting.server import FOLDER_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import Process

_ENGINE = [sys.executable, "-m", "prefect.engine"]
_SPARE = [sys.executable, "-m", "nightjar.hosting.spare_process"]
_PAUSE_SECONDS = 5.0
"""A new spare process starts this long after a run has taken the last one, so that it does not slow this run down."""
_END_SECONDS = 20.0


class SpareProcess:
    """The process that is ready for the next run, if there is one."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._starting: asyncio.Task[None] | None = None

    def prepare(self, pause_seconds: float = 0.0) -> None:
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._prepare(pause_seconds))

    async def take(self, environment: Mapping[str, str], folder: Path | None) -> Process:
        """Returns a process that runs Prefect's engine in this folder, with these environment variables."""
        process, self._process = self._process, None
        self.prepare(_PAUSE_SECONDS)
        request = {"command": _ENGINE, "environment": dict(environment), "folder": str(folder or Path.cwd())}
        message = json.dumps(request).encode()
        if process is None or process.returncode is not None or not await _is_sent(message, process):
            process = await _start(environment, folder)
            await _is_sent(message, process)
        return process

    async def _prepare(self, pause_seconds: float) -> None:
        await asyncio.sleep(pause_seconds)
        if self._process is None or self._process.returncode is not None:
            settings = get_current_settings().to_environment_variables(exclude_unset=True)
            self._process = await _start({**os.environ, **settings}, None)


async def _start(environment: Mapping[str, str], folder: Path | None) -> Process:
    """Starts a spare process in a group of its own, which a cancel ends together with the children of the run."""
    return await anyio.open_process(
        _SPARE, stdout=None, stderr=None, env=environment, cwd=folder, start_new_session=True
    )


async def _is_sent(message: bytes, process: Process) -> bool:
    """Sends a spare process its run. Returns False if the process has ended. When cancelled, kills the process."""
    assert process.stdin is not None  # it was started with a pipe
    try:
        await process.stdin.send(message)
        await process.stdin.aclose()
    except anyio.BrokenResourceError:
        return False
    except BaseException:
        process.kill()
        raise
    return True


_spare = SpareProcess()
_run = ProcessWorker.run
_enter = ProcessWorker.__aenter__


async def _enter_with_spare(worker: ProcessWorker) -> ProcessWorker:
    entered = await _enter(worker)
    _spare.prepare()
    return entered


async def _run_unprepared(worker: ProcessWorker, flow_run: Any, configuration: Any, task_status: Any = None) -> Any:
    """Runs a deployment. Skips Prefect's preparation of the code if the code is installed with Nightjar."""
    if not configuration._command_configured and _is_installed(configuration):  # noqa: SLF001
        configuration.command = command_to_string(_ENGINE)
        configuration._command_configured = True  # noqa: SLF001
    return await _run(worker, flow_run, configuration, task_status)


def _is_installed(configuration: Any) -> bool:
    """Returns whether Nightjar created a deployment whose flow is in an installed module, and needs no other steps."""
    deployment = configuration._related_objects.get("deployment")  # noqa: SLF001
    return (
        FOLDER_LABEL in configuration.labels
        and deployment is not None
        and not deployment.pull_steps
        and ":" not in (deployment.entrypoint or ":")
    )


def _starter(*, command: str | None = None, **options: Any) -> EngineCommandStarter:
    """Starts the engine of Nightjar's deployments as a plain worker does: in its own group, with its own variables."""
    own: dict[str, Any] = {"isolate_process_group": True, "env_overrides_settings": True}
    is_own = command == command_to_string(_ENGINE)
    return EngineCommandStarter(command=command, **options, **(own if is_own else {}))


async def _run_in_spare(
    command: Sequence[str],
    *,
    task_status: Any,
    task_status_handler: Any,
    env: Mapping[str, str],
    cwd: Path | None,
    stream_output: bool = True,
    **others: Any,
) -> Process:
    """Replaces Prefect's ``run_process``. The engine runs in a spare process and writes to the worker's output."""
    handling = {"task_status": task_status, "task_status_handler": task_status_handler}
    if command != _ENGINE or not stream_output:
        return await run_process(list(command), env=env, cwd=cwd, stream_output=stream_output, **handling, **others)
    process = await _spare.take(env, cwd)
    try:
        task_status.started(task_status_handler(process))
        await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_END_SECONDS):
                await process.wait()
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            await process.aclose()
    return process


def main() -> None:
    setattr(ProcessWorker, "__aenter__", _enter_with_spare)  # noqa: B010 - typed as a fixed method
    setattr(ProcessWorker, "run", _run_unprepared)  # noqa: B010
    setattr(process_worker, "EngineCommandStarter", _starter)  # noqa: B010
    setattr(_starter_engine, "run_process", _run_in_spare)  # noqa: B010
    sys.argv = sys.argv[1:]
    app()


if __name__ == "__main__":
    main()
