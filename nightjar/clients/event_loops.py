"""What belongs to an event loop, as connections do: made anew for each loop, and closed before it ends.

A program may ask one client from several loops, one after another (``evaluate_sync`` starts one each time) or at once
(in several threads). ``asyncio.run`` ends the async generators of a loop before it closes it: so one that waits for
this moment closes what must not outlive the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Something of which every event loop has its own.

    Args:
        make: makes one, in the loop that it is for.
        close: closes one, in its loop.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[Any]]) -> None:
        self._make = make
        self._close = close
        self._made: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        """Returns that of the running loop; makes it where there is none yet."""
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
        """Closes that of the running loop; those of other loops that still run close as soon as these get to it."""
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


_of_sdk_clients: WeakKeyDictionary[Any, PerLoop[None]] = WeakKeyDictionary()


async def disconnect_with_loop(sdk_client: Any) -> None:
    """Has the connections of an SDK client that the user made closed before the running loop ends.

    The client stays open, for the next loop. A client of another kind is left alone.
    """
    http = getattr(sdk_client, "_client", None)  # the httpx client
    transports = [getattr(http, "_transport", None), *getattr(http, "_mounts", {}).values()]
    closings = [transport.aclose for transport in transports if hasattr(transport, "aclose")]
    if not closings:
        return
    if http not in _of_sdk_clients:
        _of_sdk_clients[http] = PerLoop(lambda: None, lambda _: asyncio.gather(*(close() for close in closings)))
    await _of_sdk_clients[http].get()
