"""``time_limit``: ``asyncio.timeout`` with one timer for all blocks of the same length, not one for each.

Most blocks end long before their limit, and a timer for each would take as long as a short reward function. Limits of
the same length end in the order of their start, so only the oldest needs a timer.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary


class _OpenLimits:
    """The open limits of one length in one event loop, the oldest first. It must not keep the loop alive."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[time_limit, float] = {}
        self._has_timer = False

    def add(self, limit: time_limit, loop: asyncio.AbstractEventLoop) -> None:
        self._open[limit] = ends_at = loop.time() + self._seconds
        if not self._has_timer:
            self._has_timer = True
            loop.call_at(ends_at, self._expire)

    def remove(self, limit: time_limit) -> None:
        self._open.pop(limit, None)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for limit in [limit for limit, ends_at in self._open.items() if ends_at <= now]:
            del self._open[limit]
            limit.expire()
        if self._open:
            loop.call_at(next(iter(self._open.values())), self._expire)
        else:
            del _limits[loop][self._seconds]


_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, _OpenLimits]] = WeakKeyDictionary()


class time_limit:  # noqa: N801 - used like a function
    """Cancels a block of the running task after ``seconds``, and raises ``TimeoutError`` at its end.

    ``has_expired``: the block was cancelled by this limit. None means no limit.

    Example:
        >>> async def wait() -> None:
        ...     with time_limit(0.01):
        ...         await asyncio.sleep(60)
        >>> asyncio.run(wait())
        Traceback (most recent call last):
        TimeoutError
    """

    __slots__ = ("_cancelling", "_limits", "_seconds", "_task", "has_expired")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._limits: _OpenLimits | None = None
        self.has_expired = False

    def __enter__(self) -> Self:
        if self._seconds is None:
            return self
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "time_limit is used in a task"
        self._task, self._cancelling = task, task.cancelling()
        of_loop = _limits.get(loop)
        if of_loop is None:
            of_loop = _limits[loop] = {}
        if (limits := of_loop.get(self._seconds)) is None:
            limits = of_loop[self._seconds] = _OpenLimits(self._seconds)
        self._limits = limits
        limits.add(self, loop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._limits is None:
            return
        self._limits.remove(self)
        if self.has_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        self.has_expired = True
        self._task.cancel()
