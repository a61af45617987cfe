"""A task group that raises plain errors, and rarer garbage collection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

_OBJECTS_IN_PROGRESS = 20_000
_thresholds: list[tuple[int, int, int]] = []
"""The thresholds at the start of each open block, because runs of one process may overlap."""


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Waits for all its tasks.

    If a task raises, cancels the others and raises that error itself, not an error group.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from first.__cause__


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Makes Python collect garbage less often in this block.

    By default, garbage collection takes 30 % of a run's CPU.
    """
    before = gc.get_threshold()
    _thresholds.append(before)
    gc.freeze()
    gc.set_threshold(max(before[0], _OBJECTS_IN_PROGRESS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        outermost = _thresholds.pop()
        if not _thresholds:
            gc.set_threshold(*outermost)
            gc.unfreeze()
