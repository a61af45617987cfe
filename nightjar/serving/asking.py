"""What pages ask the warehouse: rows, each from column to value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Any

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.process import MOST_AT_ONCE
from nightjar.warehouse.reading.result import AskedQuery
from nightjar.warehouse.reading.time_limit import QUERY_TIMEOUT_SECONDS

_WAIT_SECONDS = 5.0
_statements = BoundedSemaphore(MOST_AT_ONCE - 1)
"""Of the questions that are answered at once, one less may be what somebody wrote, which may take as long as it may."""


def records(
    warehouse: Warehouse,
    sql: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
) -> list[dict[str, Any]]:
    """Returns the rows of an answer."""
    return warehouse.query(sql, parameters, timeout_seconds=timeout_seconds).records()


def answers(
    warehouse: Warehouse, *asked: AskedQuery, timeout_seconds: float = QUERY_TIMEOUT_SECONDS
) -> list[list[dict[str, Any]]]:
    """Returns the rows of several answers of the same moment; a page that asks all at once costs half as much."""
    return [found.records() for found in warehouse.query_all(asked, timeout_seconds=timeout_seconds)]


@contextmanager
def free_statement() -> Iterator[None]:
    """Has pages answered while statements that somebody wrote run.

    Raises:
        WarehouseError: others' are being answered.
    """
    if not _statements.acquire(timeout=_WAIT_SECONDS):
        raise WarehouseError("Other statements are being answered. Ask again in a moment.")
    try:
        yield
    finally:
        _statements.release()
