"""What pages ask the warehouse: rows, each from column to value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import AskedQuery
from nightjar.warehouse.reading.time_limit import QUERY_TIMEOUT_SECONDS


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
