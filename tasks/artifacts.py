"""Artifacts in Prefect's UI: the page of a run, its errors, and nights."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from datetime import timedelta
from urllib.parse import quote

from prefect.artifacts import acreate_markdown_artifact
from prefect.events import emit_event
from prefect.utilities.urls import url_for

from nightjar.core.failures import advice_line, class_of_chain, recorded_failures
from nightjar.core.home import VIEW_URL
from nightjar.core.text import with_error
from nightjar.engine import Run
from nightjar.engine.runs import RunMetadata, Summary
from nightjar.errors import WarehouseError
from nightjar.evaluation.config import RunConfig
from nightjar.reports.formats import cell, table
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import Night

logger = logging.getLogger("nightjar.prefect")

_COST_SECONDS = 20.0


def artifact_key(config: RunConfig | RunMetadata) -> str:
    """Returns the last part of the keys of a run's artifacts. Prefect keeps the history of each key."""
    return key_of(f"{config.env_id}-{config.model}")


def key_of(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


async def show_run(run: Run, warehouse: Warehouse, key: str) -> None:
    """Creates the artifacts of an aggregated run: its results, and its errors if it has or had any."""
    metadata = run.metadata
    assert metadata.summary is not None, "the run is aggregated"
    title = f"{metadata.env_id} | {metadata.model}: run {metadata.run_id}, {metadata.status}"
    cost = await asyncio.to_thread(_cost, run, warehouse)
    await acreate_markdown_artifact(key=f"results-{key}", markdown=_results(run, warehouse, cost), description=title)
    if metadata.summary.errors:
        await acreate_markdown_artifact(key=f"errors-{key}", markdown=_errors(metadata.summary), description=title)
    elif run.opened.before.get("errors"):
        healed = f"No errors: the failed rollouts of run {metadata.run_id} were retried and succeeded."
        await acreate_markdown_artifact(key=f"errors-{key}", markdown=healed, description=title)


def _cost(run: Run, warehouse: Warehouse) -> float | None:
    """Returns the cost with failed attempts, or None if the warehouse has no price of the model."""
    try:
        sql = "SELECT cost FROM cost WHERE run_id = $run_id"
        rows = warehouse.query(sql, {"run_id": run.run_id}, timeout_seconds=_COST_SECONDS).rows
    except WarehouseError as error:
        logger.info("The cost of the run is not known: %s", error)
        return None
    return rows[0][0] if rows else None


def _results(run: Run, warehouse: Warehouse, cost: float | None) -> str:
    metadata, summary = run.metadata, run.metadata.summary
    assert summary is not None, "the run is aggregated"
    view = os.environ.get(VIEW_URL)
    curves = [f"{k} | {value:.3f} | {summary.pass_all_k[k]:.3f}" for k, value in summary.pass_at_k.items()]
    sections = [
        f"# {_reward(summary)}",
        f"`{metadata.env_id}`, model `{metadata.model}`: **{metadata.status}**",
        f"[The run in the web view]({view}runs/{quote(metadata.run_id)})" if view else "",
        table("what | value", _overview(summary, metadata.time_ms or 0, cost)),
        table("metric | mean", [f"{name} | {value:.4g}" for name, value in summary.avg_metrics.items()]),
        table("k | pass@k | pass^k", curves),
        f"## Errors\n\n{_errors(summary)}" if summary.errors else "",
        f"Run directory: `{run.directory.path.absolute()}`",
        f"In SQL (`nightjar sql --warehouse {warehouse.location}`):",
        f"```sql\nFROM rollouts WHERE run_id = '{metadata.run_id}'\n```",
    ]
    return "\n\n".join(filter(None, sections))


def _reward(summary: Summary) -> str:
    if summary.avg_reward is None:
        return "No reward: no rollout is scored"
    return f"Reward {with_error(summary.avg_reward, summary.stderr)}"


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


def _errors(summary: Summary) -> str:
    examples = summary.error_examples
    rows = [
        f"{count} | {class_of_chain(chain, examples)} | {chain} | {cell(examples[chain])}"
        for chain, count in summary.errors.items()
    ]
    advice = "\n".join(f"- {advice_line(kind)}" for kind in recorded_failures(summary.metadata()))
    return f"{table('rollouts | class | error | one of them', rows)}\n\n{advice}"


async def show_night(night: Night) -> None:
    """Creates the artifact of a night; if it has ended, emits the event ``nightjar.night.VERDICT`` for automations.

    The resource of the event is ``nightjar.suite.NAME``; the payload has the date, and the verdict as one line.
    """
    from nightjar.reports.nights import night_report

    report = night_report(night, lambda flow_run_id: url_for("flow-run", flow_run_id))
    await acreate_markdown_artifact(report, key=key_of(f"night-{night.suite}"), description=night.line)
    if night.verdict == "running":
        return
    emit_event(
        event=f"nightjar.night.{night.verdict}",
        resource={"prefect.resource.id": f"nightjar.suite.{night.suite}", "prefect.resource.name": night.suite},
        payload={"suite": night.suite, "night": night.night, "verdict": night.verdict, "line": night.line},
    )
