"""A question to the warehouse as a Prefect task."""

from __future__ import annotations

import asyncio
from typing import Any

from prefect import task
from prefect.artifacts import acreate_table_artifact
from prefect.cache_policies import NO_CACHE

from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.known_values import require_known
from nightjar.warehouse.reading.named_queries import question
from nightjar.warehouse.reading.result_values import as_table


@task(task_run_name="ask {key}", cache_policy=NO_CACHE, persist_result=False)
async def ask(warehouse: Warehouse, sql: str, parameters: dict[str, Any], timeout_seconds: float, key: str) -> int:
    """Runs a query, shows its first rows as a table artifact, and returns how many there are."""
    asked = question(sql, parameters)
    result = await asyncio.to_thread(warehouse.query, asked.sql, asked.parameters, timeout_seconds=timeout_seconds)
    if not result.rows:
        await asyncio.to_thread(require_known, asked, warehouse.query)
    table = as_table(result)
    shown = f"the first {len(table):,} of {len(result.rows):,}" if len(table) < len(result.rows) else f"{len(table):,}"
    await acreate_table_artifact(key=key, table=table, description=f"{shown} rows\n\n```sql\n{asked.sql}\n```")
    return len(result.rows)
