"""Threads for user code that may block or hang.

One thread takes all waiting calls, and another thread starts only when a call has to wait. Waking a thread takes ten
times as long as a short call, so calls that follow each other closely are handed over together. Threads that hang are
abandoned, and do not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from anyio.from_thread import start_blocking_portal

_MAX_THREADS = 64
_PATIENCE_SECONDS = 0.01
_GATHERING_SECONDS = 0.005
_SHORT_SECONDS = 0.001
_DELIVERY_SECONDS = 0.002

T = TypeVar("T")


class _Call:
    __slots__ = ("context", "error", "func", "future", "has_ended", "is_left_behind", "loop", "result")

    def __init__(self, func: Callable[[], Any]) -> None:
        self.func = func
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.has_ended = False
        self.is_left_behind = False
        self.result: Any = None
        self.error: BaseException | None = None

    def execute(self) -> None:
        try:
            self.result = self.context.run(self.func)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self.error = error

    def resolve(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, Exception) and not isinstance(self.error, StopIteration):
            self.future.set_exception(self.error)
        else:  # a future cannot carry these errors, and sys.exit() in a reward function must not end the run
            error = RuntimeError(f"the function raised {type(self.error).__name__}: {self.error}")
            error.__cause__ = self.error
            self.future.set_exception(error)


class WorkerThreads:
    def __init__(self) -> None:
        self._waiting: deque[_Call] = deque()
        self._done: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._watching: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        self._gathering: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        self._handed_over_at = 0.0
        self._usual_seconds = 0.0

    async def run(self, func: Callable[[], Any]) -> Any:
        """Runs ``func`` in a thread with the caller's context variables, and returns its result."""
        call = _Call(func)
        self._waiting.append(call)
        if time.monotonic() - self._handed_over_at > _GATHERING_SECONDS:
            self._hand_over(call.loop)
        elif call.loop not in self._gathering:
            self._gathering.add(call.loop)
            call.loop.call_later(_GATHERING_SECONDS, self._hand_over, call.loop)
        try:
            return await call.future
        except asyncio.CancelledError:
            self._give_up(call)
            raise

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        self._gathering.discard(loop)
        self._handed_over_at = time.monotonic()
        with self._changed:
            if self._idle:
                self._changed.notify(1 if self._usual_seconds < _SHORT_SECONDS else len(self._waiting))
            elif not self._threads:
                self._start_thread()
            if loop not in self._watching:
                self._watching.add(loop)
                loop.call_later(_PATIENCE_SECONDS, self._watch, len(self._waiting))

    def _watch(self, waiting_before: int) -> None:
        """Wakes or starts threads if no call was taken for a while. Delivers late results of replaced threads."""
        loop = asyncio.get_running_loop()
        with self._changed:
            waiting = len(self._waiting)
            if waiting >= waiting_before > 0:
                if self._idle:
                    self._changed.notify(waiting)
                elif self._threads < _MAX_THREADS:
                    self._start_thread()
            if not waiting:
                self._watching.discard(loop)
        self._deliver()
        if waiting:
            loop.call_later(_PATIENCE_SECONDS, self._watch, waiting)

    def _give_up(self, call: _Call) -> None:
        with self._changed:
            if call in self._waiting:
                self._waiting.remove(call)
            elif not call.has_ended:
                call.is_left_behind = True
                self._threads -= 1

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="nightjar-worker", daemon=True).start()

    def _work(self) -> None:
        since = 0.0
        while True:
            call = self._take()
            began_at = time.monotonic()
            call.execute()
            with self._changed:
                call.has_ended = True
                self._usual_seconds += 0.1 * (time.monotonic() - began_at - self._usual_seconds)
            if call.is_left_behind:  # this thread has been replaced
                self._deliver()
                return
            since = since if self._done else time.monotonic()
            self._done.append(call)
            if time.monotonic() - since > _DELIVERY_SECONDS:
                self._deliver()

    def _take(self) -> _Call:
        if not self._waiting:
            self._deliver()
        with self._changed:
            while not self._waiting:
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._waiting.popleft()

    def _deliver(self) -> None:
        calls: list[_Call] = []
        with suppress(IndexError):  # another thread may hand over at the same time
            while True:
                calls.append(self._done.popleft())
        for loop in {call.loop for call in calls}:
            mine = [call for call in calls if call.loop is loop]
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve_all, mine)


def _resolve_all(calls: list[_Call]) -> None:
    for call in calls:
        call.resolve()


threads = WorkerThreads()


def leave_threads_behind() -> None:
    """Lets the running event loop end without waiting for calls that hang in ``asyncio.to_thread``."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))


def run_sync(awaitable: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end. If an event loop already runs, as in a notebook, uses a separate thread."""
    if not is_in_loop():
        return asyncio.run(_awaited(awaitable))
    with start_blocking_portal(name="nightjar-sync") as portal:
        return portal.call(_awaited, awaitable)


def is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(awaitable: Awaitable[T]) -> T:
    try:
        return await awaitable
    finally:
        leave_threads_behind()
