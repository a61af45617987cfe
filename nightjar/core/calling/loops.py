"""Keeps objects, such as connections, in their event loop or thread: an environment serves runs in several loops."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from nightjar.core.calling import is_async

T = TypeVar("T")

_JOIN_SECONDS = 5.0

_Job: TypeAlias = tuple[Callable[[], Any], "Future[Any]"]


class HomeLoop:
    """Runs coroutines in one event loop, whichever thread or loop awaits them.

    The home loop is the loop that called ``settle``, or else a loop in its own thread, which starts on first use.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def settle(self) -> None:
        """Makes the running loop the home loop, unless the object's own thread has been started."""
        with self._lock:
            if self._thread is None:
                self._loop = asyncio.get_running_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result.

        Blocks this thread; must not be called in the home loop's own thread.
        """
        return self._submit(work).result()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result, without blocking the running event loop.

        Cancelling this call cancels the coroutine.
        """
        if self._loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(self._submit(work))

    def call_soon(self, func: Callable[..., Any], *args: Any) -> None:
        """Calls a function in the home loop: at once if this is the home loop or there is none, otherwise soon."""
        with self._lock:
            loop = self._loop
            is_elsewhere = loop is not None and not loop.is_closed() and not _is_running(loop)
            if loop is not None and (self._thread is not None or is_elsewhere):
                loop.call_soon_threadsafe(func, *args)
                return
        func(*args)

    def stop(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None or self._loop is None:
                return
            loop, self._loop = self._loop, None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_JOIN_SECONDS)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class OwnThread:
    """Calls functions one after another in one daemon thread, for objects that must not move between threads."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if is_async(func):
            return await func(*args, **kwargs)
        result = await self._run(partial(func, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    def end(self) -> None:
        self._jobs.put(None)

    async def _run(self, func: Callable[[], Any]) -> Any:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="nightjar-episode", daemon=True)
            self._thread.start()
        future: Future[Any] = Future()
        self._jobs.put((partial(contextvars.copy_context().run, func), future))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while job := self._jobs.get():
            func, future = job
            if future.set_running_or_notify_cancel():
                _fulfil(future, func)


def _fulfil(future: Future[Any], func: Callable[[], Any]) -> None:
    try:
        future.set_result(func())
    except StopIteration as error:  # a future of asyncio cannot carry it
        failure = RuntimeError(f"the function raised {type(error).__name__}")
        failure.__cause__ = error
        future.set_exception(failure)
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        future.set_exception(error)


class PerLoop(Generic[T]):
    """One value per event loop. The value is closed when ``asyncio.run`` ends the loop's async generators."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[Any]]) -> None:
        self._make = make
        self._close = close
        self._made: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        loop = asyncio.get_running_loop()
        if loop in self._made:
            return self._made[loop][0]
        for other in [other for other in self._made if other.is_closed()]:
            self._made.pop(other, None)
        value = self._make()
        end = _until_the_end(value, self._close)
        self._made[loop] = value, end
        await anext(end)
        return value

    async def close(self) -> None:
        """Closes the value of the running loop at once, and the values of other running loops soon."""
        here = asyncio.get_running_loop()
        while self._made:
            loop, (_, end) = self._made.popitem()
            if loop is here:
                await end.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_aclose(end), loop)


async def _until_the_end(value: T, close: Callable[[T], Awaitable[Any]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close(value)


async def _aclose(end: AsyncGenerator[None, None]) -> None:
    await end.aclose()
