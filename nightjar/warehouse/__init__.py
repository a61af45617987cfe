"""All published runs, in segments that DuckDB reads; the only package that imports DuckDB.

>>> warehouse = Warehouse(resolve_warehouse())          # doctest: +SKIP
>>> warehouse.publish("outputs/evals/gsm8k--gpt-4.1-mini/1a2b3c4d")   # doctest: +SKIP
>>> warehouse.query("SELECT model, avg_reward FROM leaderboard").rows  # doctest: +SKIP
>>> connect().sql("FROM leaderboard").df()  # doctest: +SKIP
"""

from __future__ import annotations

from nightjar.warehouse.location import resolve_warehouse
from nightjar.warehouse.reading.result import QueryResult
from nightjar.warehouse.warehouse import Unlocked, Warehouse, connect
from nightjar.warehouse.writing.publish_report import PublishReport

__all__ = ["PublishReport", "QueryResult", "Unlocked", "Warehouse", "connect", "resolve_warehouse"]
