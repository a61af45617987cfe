"""What a person looks at first in Prefect's UI: a run in one page, and why rollouts failed."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from urllib.parse import quote

from prefect.artifacts import acreate_markdown_artifact

from nightjar.errors import WarehouseError
from nightjar.evaluation import Run
from nightjar.evaluation.failures import advice_line, class_of_chain, recorded_failures
from nightjar.home import VIEW_URL
from nightjar.reports.markdown import cell, table
from nightjar.runs import Summary
from nightjar.warehouse import Warehouse

logger = logging.getLogger("nightjar.prefect")

_COST_SECONDS = 20.0


async def show_run(run: Run, warehouse: Warehouse, key: str) -> None:
    """Makes the artifacts of a run that is added up: its results, and its errors where it has or had any.

    Args:
        run: the run.
        warehouse: where it is published.
        key: the end of the artifacts' keys.
    """
    metadata = run.metadata
    assert metadata.summary is not None, "the run is aggregated"
    title = f"{metadata.env_id} | {metadata.model}: run {metadata.run_id}, {metadata.status}"
    cost = await asyncio.to_thread(_cost, run, warehouse)
    await acreate_markdown_artifact(key=f"results-{key}", markdown=_results(run, warehouse, cost), description=title)
    if metadata.summary.errors:
        await acreate_markdown_artifact(key=f"errors-{key}", markdown=_errors(metadata.summary), description=title)
    elif run.opened.before.get("errors"):
        healed = f"No errors any more: what had failed in run {metadata.run_id} was done again, and succeeded."
        await acreate_markdown_artifact(key=f"errors-{key}", markdown=healed, description=title)


def _cost(run: Run, warehouse: Warehouse) -> float | None:
    """Returns what the run cost, failed attempts included; None where the warehouse has no price of the model."""
    try:
        sql = "SELECT cost FROM cost WHERE run_id = $run_id"
        rows = warehouse.query(sql, {"run_id": run.run_id}, timeout_seconds=_COST_SECONDS).rows
    except WarehouseError as error:
        logger.info("What the run cost is not known: %s", error)
        return None
    return rows[0][0] if rows else None


def _results(run: Run, warehouse: Warehouse, cost: float | None) -> str:
    metadata, summary = run.metadata, run.metadata.summary
    assert summary is not None, "the run is aggregated"
    sections = [
        f"# {_reward(summary)}",
        f"`{metadata.env_id}`, model `{metadata.model}`: **{metadata.status}**",
        _link(metadata.run_id),
        table("what | value", _overview(summary, metadata.time_ms or 0, cost)),
        table("metric | mean", [f"{name} | {value:.4g}" for name, value in summary.avg_metrics.items()]),
        table("k | pass@k | pass^k", _curves(summary)),
        f"## Errors\n\n{_errors(summary)}" if summary.errors else "",
        f"Run directory: `{run.directory.path.absolute()}`",
        f"In SQL (`nightjar sql --warehouse {warehouse.location}`):",
        f"```sql\nFROM rollouts WHERE run_id = '{metadata.run_id}'\n```",
    ]
    return "\n\n".join(filter(None, sections))


def _link(run_id: str) -> str:
    """Returns a link to the run's page; nothing where no web view is known."""
    view = os.environ.get(VIEW_URL)
    return f"[The run in the web view]({view}runs/{quote(run_id)})" if view else ""


def _reward(summary: Summary) -> str:
    if summary.avg_reward is None:
        return "No reward: nothing is scored"
    error = "" if summary.stderr is None else f" ± {summary.stderr:.4f}"
    return f"Reward {summary.avg_reward:.4f}{error}"


def _overview(summary: Summary, time_ms: int, cost: float | None) -> list[str]:
    rows = [
        f"scored | {summary.scored:,} of {summary.rollouts:,} rollouts ({summary.coverage:.1%})",
        f"failed | {summary.failed:,}",
        f"time | {timedelta(seconds=round(time_ms / 1000))}",
    ]
    if summary.usage:
        tokens = summary.usage
        rows.append(f"tokens | {tokens['input_tokens']:,.0f} in, {tokens['output_tokens']:,.0f} out")
    if cost is not None:
        rows.append(f"cost | {cost:.4g}, failed attempts included")
    return rows


def _curves(summary: Summary) -> list[str]:
    return [f"{k} | {value:.3f} | {summary.pass_all_k[k]:.3f}" for k, value in summary.pass_at_k.items()]


def _errors(summary: Summary) -> str:
    examples = summary.error_examples
    rows = [
        f"{count} | {class_of_chain(chain, examples)} | {chain} | {cell(examples[chain])}"
        for chain, count in summary.errors.items()
    ]
    advice = "\n".join(f"- {advice_line(kind)}" for kind in recorded_failures(summary.metadata()))
    return f"{table('rollouts | class | error | one of them', rows)}\n\n{advice}"
