"""Stops the runs of a process on Ctrl-C, SIGTERM and SIGHUP; stopped runs are aggregated and published."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType

from nightjar.engine import open_runs
from nightjar.errors import RunCancelledError

_AGAIN_SECONDS = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@asynccontextmanager
async def stopped_by_signals() -> AsyncIterator[None]:
    """Makes the first signal stop all runs in progress.

    A second signal, or any signal while no run is in progress, raises ``KeyboardInterrupt``. Signals that the process
    ignores stay ignored. Outside of the main thread, signals are not handled.
    """
    loop, has_stopped, is_over = asyncio.get_running_loop(), False, False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal has_stopped
        if has_stopped or not open_runs():
            raise KeyboardInterrupt
        has_stopped = True
        loop.call_soon_threadsafe(stop_all, signal.Signals(number).name)

    def stop_all(name: str) -> None:
        for run in open_runs():
            run.stop(RunCancelledError(f"Cancelled by {name}"))
        if not is_over:  # another evaluation may be about to open its run
            loop.call_later(_AGAIN_SECONDS, stop_all, name)

    with _handled(stop):
        try:
            yield
        finally:
            is_over = True


@asynccontextmanager
async def stop_requested() -> AsyncIterator[asyncio.Event]:
    """Yields an event that the first signal sets. The second signal raises ``KeyboardInterrupt``."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(event.set)

    with _handled(stop):
        yield event


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Installs a signal handler for the block, except for signals that the process ignores."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    changed = [number for number, each in before.items() if each is not signal.SIG_IGN]
    with suppress(ValueError):  # outside of the main thread
        for number in changed:
            signal.signal(number, handler)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number in changed:
                signal.signal(number, before[number])
