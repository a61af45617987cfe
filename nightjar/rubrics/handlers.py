"""Runs clean-up handlers: all of them, whatever some of them raise, and however long they take."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from nightjar.calling import OverdueError, within
from nightjar.calling.cancellation import user_error

Handler: TypeAlias = Callable[[], Awaitable[Any]]
"""An async function."""

logger = logging.getLogger(__name__)


async def run_all(handlers: Iterable[Handler], timeout_seconds: float | None = None) -> None:
    """Calls the handlers one after another, and raises the first error when all have run.

    They run also where this task is cancelled meanwhile: that interrupts one of them, and is raised in the end.

    Args:
        handlers: what to call.
        timeout_seconds: for each of them; None for no limit.
    """
    raised = [error for handler in handlers if (error := await _error_of(handler, timeout_seconds)) is not None]
    for further in raised[1:]:
        logger.error("A further clean-up handler failed: %s", further, exc_info=further)
    interruptions = [error for error in raised if not isinstance(error, Exception)]
    if raised:
        raise (interruptions or raised)[0]


async def _error_of(handler: Handler, timeout_seconds: float | None) -> BaseException | None:
    try:
        await within(timeout_seconds, handler())  # type: ignore[arg-type]  # of an async function
    except OverdueError as error:
        late = TimeoutError(f"a clean-up {error}")
        late.__cause__ = error
        return late
    except BaseException as raised:  # noqa: BLE001 - handlers are user code
        return _as_error(raised)
    return None


def _as_error(raised: BaseException) -> BaseException:
    try:
        return user_error(raised)
    except BaseException as interruption:  # noqa: BLE001 - it is raised when all handlers have run
        return interruption
