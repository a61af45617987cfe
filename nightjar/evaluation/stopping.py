"""Ctrl-C, SIGTERM and a terminal that is closed stop the runs of a process, which are added up and published then."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType

from nightjar.engine import runs_under_way
from nightjar.errors import RunCancelledError

_AGAIN_SECONDS = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@asynccontextmanager
async def stopped_by_signals() -> AsyncIterator[None]:
    """Lets the first signal stop the runs under way, and the second one, or one while there is no run, end all else.

    The second is a ``KeyboardInterrupt``. Signals that the process was started to ignore stay ignored; in another
    thread than the main one nothing changes.
    """
    loop, has_stopped, is_over = asyncio.get_running_loop(), False, False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal has_stopped
        if has_stopped or not runs_under_way():
            raise KeyboardInterrupt
        has_stopped = True
        loop.call_soon_threadsafe(stop_all, signal.Signals(number).name)

    def stop_all(name: str) -> None:
        for run in runs_under_way():
            run.stop(RunCancelledError(f"Cancelled by {name}"))
        if not is_over:  # another of several evaluations may be about to open its run
            loop.call_later(_AGAIN_SECONDS, stop_all, name)

    with _handled(stop):
        try:
            yield
        finally:
            is_over = True


@asynccontextmanager
async def told_to_stop() -> AsyncIterator[asyncio.Event]:
    """Gives an event that the first signal sets; the second one ends all by a ``KeyboardInterrupt``."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(event.set)

    with _handled(stop):
        yield event


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Has signals handled in the block, but for those that the process was started to ignore."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    changed = [number for number, each in before.items() if each is not signal.SIG_IGN]
    with suppress(ValueError):  # not the main thread
        for number in changed:
            signal.signal(number, handler)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number in changed:
                signal.signal(number, before[number])
