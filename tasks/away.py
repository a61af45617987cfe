"""Calls Prefect's server without failing or waiting: a run continues while the server does not answer, or hangs."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial, wraps
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect import State, Task
from prefect.client.orchestration import get_client
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

_AWAY_IN_CALL = (*SERVER_IS_AWAY, TimeoutError, AssertionError)
"""Errors of a single call: also the end of its time, and the error that Prefect's client raises if ``note`` lowers the
number of retries while the client retries.
"""

_START_SECONDS = 0.5
"""Prefect's engine asks the server for the slots of a task's tags. A task that may not start by then starts anyway."""
_CALL_SECONDS = 10.0
_PAUSE_SECONDS = 2.0
_PAGE_SECONDS = 60.0

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


class _Work:
    """The function of a task. Prefect's engine calls it; while the engine waits for the server, it can start before."""

    def __init__(self, call: Callable[[], Awaitable[Any]]) -> None:
        self._call = call
        self._early: asyncio.Future[Any] | None = None
        self.is_asked = asyncio.Event()
        self.has_succeeded = asyncio.Event()
        self.result: Any = None

    async def __call__(self) -> Any:
        self.is_asked.set()
        return await self.outcome()

    async def outcome(self) -> Any:
        """Runs the work, but takes the outcome of the early start if that succeeded or nobody took it."""
        if self.has_succeeded.is_set():
            return self.result
        early, self._early = self._early, None
        return await (early or self._run())

    async def start_early(self) -> None:
        """Runs the work once without raising its error. The engine gets the outcome if it asks for the work later."""
        early = self._early = asyncio.ensure_future(self._run())
        try:
            await asyncio.wait([early])
        except asyncio.CancelledError:
            early.cancel()
            raise

    async def _run(self) -> Any:
        self.result = await self._call()
        self.has_succeeded.set()
        return self.result


async def run_task(task: Task[..., Any], *args: Any, task_run_id: UUID, after: Iterable[UUID] = ()) -> Any:
    """Runs an async Prefect task and returns its result; without the server, calls the task's function.

    The result of a cancelled task is None. No argument may be a future. ``after`` are ids of task runs from which
    Prefect's pages draw an arrow to this task run. The task does not wait for them. A server that hangs delays the task
    by half a second, and the result by ten.
    """
    call = partial(task.fn, *args)
    result = await call() if _is_away else await _recorded(_Work(call), task, args, task_run_id, after)
    return None if isinstance(result, State) else result


async def _recorded(
    work: _Work, task: Task[..., Any], args: tuple[Any, ...], task_run_id: UUID, after: Iterable[UUID]
) -> Any:
    recording = asyncio.ensure_future(_as_task_run(_task_of(work, task), args, task_run_id, after))
    try:
        if not await _happens(work.is_asked, recording, _START_SECONDS):
            await work.start_early()
            if work.has_succeeded.is_set() and not work.is_asked.is_set():
                _leave(recording)
                return work.result
            if not await _happens(work.is_asked, recording, _CALL_SECONDS):  # so that the engine retries what failed
                recording.cancel()
                return await work.outcome()
        await _happens(work.has_succeeded, recording, None)
        await asyncio.wait([recording], timeout=_CALL_SECONDS if work.has_succeeded.is_set() else None)
        if not recording.done():
            note(away=True)
            _leave(recording)
            return work.result
        return await _result(recording, work)
    except BaseException:
        recording.cancel()
        raise


async def _result(recording: asyncio.Future[State[Any]], work: _Work) -> Any:
    try:
        state = recording.result()
    except _AWAY_IN_CALL:
        note(away=True)
        return work.result if work.has_succeeded.is_set() else await work.outcome()
    return state if state.is_cancelled() else await state.aresult()


def _task_of(work: _Work, task: Task[..., Any]) -> Task[..., Any]:
    """Returns a copy of the task whose function is the work."""

    @wraps(task.fn)
    async def function(*_args: Any, **_kwargs: Any) -> Any:
        return await work()

    copied = copy.copy(task)
    copied.fn = function
    return copied


async def _happens(event: asyncio.Event, recording: asyncio.Future[Any], seconds: float | None) -> bool:
    """Waits for the event, but not longer than for the end of the recording. Returns False if the time is over."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait([waiting, recording], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return event.is_set() or recording.done()  # either may happen after the time is over, and before this line


_left: set[asyncio.Future[Any]] = set()


def _leave(recording: asyncio.Future[Any]) -> None:
    """Lets Prefect record a task run when its server answers again, and does not wait for it."""
    _left.add(recording)
    recording.add_done_callback(_forget)


def _forget(recording: asyncio.Future[Any]) -> None:
    _left.discard(recording)
    if not recording.cancelled() and (error := recording.exception()):
        logger.debug("A task run was not recorded", exc_info=error)


async def settle() -> None:
    """Waits for task runs that a slow server records later than they end. Call it at the end of a flow."""
    if _left and not _is_away:
        await asyncio.wait(_left, timeout=_CALL_SECONDS)


async def wait_until_back(seconds: float) -> None:
    """Waits until the server answers again, at most for ``seconds``."""
    until = time.monotonic() + seconds
    while _is_away and time.monotonic() < until:
        if await reach(_greet) is None:
            await asyncio.sleep(_PAUSE_SECONDS)


async def _greet() -> bool:
    async with get_client() as client:
        await client.hello()
    return True


async def _as_task_run(
    task: Task[..., Any], args: tuple[Any, ...], task_run_id: UUID, after: Iterable[UUID]
) -> State[Any]:
    parameters = get_call_parameters(task.fn, args, {})
    state: State[Any] = await run_task_async(
        task,
        task_run_id=task_run_id,
        parameters={name: quote(value) for name, value in parameters.items()},  # else Prefect draws an arrow for each
        dependencies={next(iter(parameters)): {TaskRunResult(id=each) for each in after}},
        return_type="state",
    )  # type: ignore[assignment]
    return state


async def reach(work: Callable[[], Awaitable[Result]]) -> Result | None:
    """Calls the server even if the last call failed, for repeated calls. Returns None if the server does not answer."""
    try:
        async with asyncio.timeout(_CALL_SECONDS):
            answer = await work()
    except _AWAY_IN_CALL:
        note(away=True)
        return None
    note(away=False)
    return answer


async def tell(work: Callable[[], Awaitable[Any]]) -> None:
    """Sends the server something that only its pages show; does nothing while the server does not answer."""
    if _is_away:
        return
    try:
        async with asyncio.timeout(_PAGE_SECONDS):
            await work()
    except _AWAY_IN_CALL:
        note(away=True)
