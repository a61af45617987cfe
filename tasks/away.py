"""Calls Prefect's server without failing: a run continues while the server does not answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect import State, Task
from prefect.client.schemas.objects import TaskRunResult
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.settings import get_current_settings
from prefect.task_engine import run_task_async
from prefect.utilities.annotations import quote
from prefect.utilities.callables import get_call_parameters

logger = logging.getLogger("nightjar.prefect")

Result = TypeVar("Result")

SERVER_IS_AWAY = (httpx.TransportError, httpx.HTTPStatusError, ConcurrencySlotAcquisitionError)
"""Errors that Prefect raises, after its own retries, if its server does not answer or answers only with errors."""

_is_away = False
_retries: list[int] = []


def is_away() -> bool:
    """Returns whether the last call failed. Then the run does not call the server again until ``reach`` succeeds."""
    return _is_away


def note(*, away: bool) -> None:
    global _is_away  # noqa: PLW0603 - the server is one for the process
    client = get_current_settings().client
    if away and not _is_away:
        _retries[:] = [client.max_retries]
        client.max_retries = 0  # each takes 2 s, and a run makes several requests at its end
        logger.warning("Prefect's server does not answer: the run continues without it")
    elif _is_away and not away:
        client.max_retries = _retries.pop()
        logger.warning("Prefect's server answers again")
    _is_away = away


async def run_task(
    task: Task[..., Any], *args: Any, task_run_id: UUID | None = None, after: Iterable[UUID] | None = None
) -> Any:
    """Runs an async Prefect task and returns its result; without the server, calls the task's function.

    The result of a cancelled task is None. No argument may be a future. ``after`` are ids of task runs from which
    Prefect's pages draw an arrow to this task run; None means the task runs that made the arguments. The task does not
    wait for them.
    """
    if not _is_away:
        try:
            state: State[Any] = await _as_task_run(task, args, task_run_id, after)
        except SERVER_IS_AWAY:
            note(away=True)
        else:
            return None if state.is_cancelled() else await state.aresult()
    result = await task.fn(*args)
    return None if isinstance(result, State) else result


async def _as_task_run(
    task: Task[..., Any], args: tuple[Any, ...], task_run_id: UUID | None, after: Iterable[UUID] | None
) -> State[Any] | Any:
    parameters = get_call_parameters(task.fn, args, {})
    dependencies: dict[str, set[Any]] = {}
    if after is not None:
        dependencies = {next(iter(parameters)): {TaskRunResult(id=each) for each in after}}
        parameters = {name: quote(value) for name, value in parameters.items()}  # else Prefect draws an arrow for each
    return await run_task_async(
        task, task_run_id=task_run_id, parameters=parameters, dependencies=dependencies, return_type="state"
    )


async def reach(work: Callable[[], Awaitable[Result]]) -> Result | None:
    """Calls the server even if the last call failed, for repeated calls. Returns None if the server does not answer."""
    try:
        answer = await work()
    except SERVER_IS_AWAY:
        note(away=True)
        return None
    note(away=False)
    return answer


async def tell(work: Callable[[], Awaitable[Any]]) -> None:
    """Sends the server something that only its pages show; does nothing while the server does not answer."""
    if _is_away:
        return
    try:
        await work()
    except SERVER_IS_AWAY:
        note(away=True)
