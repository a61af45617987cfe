"""A gate over a night with Prefect: its verdict, and what a person reads of it."""

from __future__ import annotations

import asyncio
import re

from prefect import task
from prefect.artifacts import acreate_markdown_artifact
from prefect.cache_policies import NO_CACHE

from nightjar import comparison
from nightjar.reports.gate import gate_report
from nightjar.warehouse import Warehouse


@task(cache_policy=NO_CACHE, persist_result=False)
async def decide(policy: str, candidate: str, warehouse: Warehouse) -> comparison.Verdict:
    """Gates a night, keeps the verdict in the warehouse, and shows it in an artifact."""
    verdict = await asyncio.to_thread(comparison.gate, policy, None, candidate, warehouse=warehouse, record=True)
    key = re.sub(r"[^a-z0-9]+", "-", f"gate-{verdict.suite or candidate}".lower()).strip("-")
    await acreate_markdown_artifact(gate_report(verdict), key=key, description=f"{verdict.decision}: {verdict.reason}")
    return verdict
