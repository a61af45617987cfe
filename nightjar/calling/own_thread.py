"""``OwnThread``: one thread for one object that must not move between threads.

Browsers, databases and graphics contexts belong to the thread that opened them. The shared pool of
``nightjar.calling`` takes whichever thread is free, so an object with such ties gets a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from nightjar.calling import is_async

_Job: TypeAlias = tuple[Callable[[], Any], "Future[Any]"]


class OwnThread:
    """Calls functions one after another, all in the same thread; keeps no process alive.

    Example:
        >>> import sqlite3
        >>> async def query():
        ...     thread = OwnThread()
        ...     database = await thread.call(sqlite3.connect, ":memory:")
        ...     rows = await thread.call(lambda: database.execute("SELECT 6 * 7").fetchall())
        ...     await thread.call(database.close)
        ...     thread.end()
        ...     return rows
        >>> asyncio.run(query())
        [(42,)]
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function and returns its result: an async one in the event loop, any other one in the thread."""
        if is_async(func):
            return await func(*args, **kwargs)
        result = await self._run(partial(func, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    def end(self) -> None:
        """Lets the thread end after what it has been given."""
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
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the result
        future.set_exception(error)
