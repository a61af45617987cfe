"""``BackgroundLoop``: an event loop in a thread of its own, for what outlives the loops of its users.

A connection belongs to the loop that opened it, while an environment is made where no loop runs and then used by one
run after another, each with its own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_JOIN_SECONDS = 5.0


class BackgroundLoop:
    """Runs coroutines for any thread and any event loop; starts when it is first needed, also after ``stop``.

    Example:
        >>> loop = BackgroundLoop("example")
        >>> async def six():
        ...     return 6
        >>> loop.run(six()), asyncio.run(loop.call(six()))
        (6, 6)
        >>> loop.stop()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Says whether the thread has been started and not been stopped."""
        return self._loop is not None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the result, blocking this thread; not to be used in the loop's own thread."""
        return self._submit(work).result()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the result without blocking the event loop that runs here; cancelling it cancels the work."""
        return await asyncio.wrap_future(self._submit(work))

    def stop(self) -> None:
        """Ends the thread; what still runs in it is cancelled."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
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
