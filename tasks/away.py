"""A Prefect server that is away costs no run: what it cannot be told of is done without it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.settings import get_current_settings

logger = logging.getLogger("nightjar.prefect")

Result = TypeVar("Result")

SERVER_IS_AWAY = (httpx.TransportError, httpx.HTTPStatusError, ConcurrencySlotAcquisitionError)
"""What Prefect raises when its server does not answer, or only with errors, after tries of its own."""

_is_away = False
_retries: list[int] = []


def is_away() -> bool:
    """Says whether the server did not answer the last time: the run leaves it alone until it does."""
    return _is_away


def note(*, away: bool) -> None:
    """Takes note of whether the server answers; says so where that is news."""
    global _is_away  # noqa: PLW0603 - the server is one for the process
    client = get_current_settings().client
    if away and not _is_away:
        _retries[:] = [client.max_retries]
        client.max_retries = 0  # each takes 2 s, and the end of a run has several requests
        logger.warning("Prefect's server does not answer: the run goes on without it")
    elif _is_away and not away:
        client.max_retries = _retries.pop()
        logger.warning("Prefect's server answers again")
    _is_away = away


async def unless_away(told: Callable[[], Awaitable[Result]], alone: Callable[[], Awaitable[Result]]) -> Result:
    """Does something with Prefect, or without it where its server is away.

    Args:
        told: with Prefect.
        alone: the same without it; what was done already is not done twice.
    """
    if not _is_away:
        try:
            return await told()
        except SERVER_IS_AWAY:
            note(away=True)
    return await alone()
