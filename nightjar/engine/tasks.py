"""What the tasks of a run run in: a group that raises plain errors, and a garbage collector that looks seldom."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

_OBJECTS_UNDER_WAY = 20_000
_thresholds: list[tuple[int, int, int]] = []
"""As they were when each block began that is under way: runs of one process may overlap."""


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Waits for all its tasks; when one raises, cancels the others and raises that error, not a group."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from first.__cause__


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Has Python look for garbage less often in this block, and not among what is loaded.

    A rollout's objects are freed when it ends, without that. As Python is set up, what is loaded would be walked
    through again and again (a fifth of a run's CPU), and so would what is under way (a tenth).
    """
    before = gc.get_threshold()
    _thresholds.append(before)
    gc.freeze()
    gc.set_threshold(max(before[0], _OBJECTS_UNDER_WAY) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        outermost = _thresholds.pop()
        if not _thresholds:
            gc.set_threshold(*outermost)
            gc.unfreeze()
