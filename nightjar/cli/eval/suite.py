"""Several evaluations from the command line: lines while they are under way, and one table at the end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.eval.display import next_command, with_error
from nightjar.cli.eval.live import Style
from nightjar.cli.eval.running import as_record, errors_of, watched
from nightjar.cli.terminal import echo
from nightjar.config import Evaluation, RunConfig
from nightjar.evaluation import Ended, Outcome, evaluate_together, within_budget
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse


def run_together(
    evaluations: Sequence[Evaluation],
    run: Callable[[RunConfig], Awaitable[Outcome]],
    warehouse: str | None,
    *,
    style: Style = "auto",
    heartbeat_url: str | None = None,
) -> list[Ended]:
    """Runs evaluations at once, and says on stderr how far they are.

    Args:
        evaluations: what to run.
        run: runs one.
        warehouse: its location, for prices; None for the default.
        style: how it is shown how far they are.
        heartbeat_url: asked as rollouts come to their end; None for no heartbeats.
    """
    with within_budget([each.config for each in evaluations], Warehouse(resolve_warehouse(warehouse))):
        return watched(lambda: evaluate_together(evaluations, run, _say_ended), style, heartbeat_url)


def finish_together(ended: Sequence[Ended], as_json: bool) -> None:
    """Shows how evaluations ended, and leaves the process with their exit code: 0 when all are complete."""
    if as_json:
        echo(json.dumps([_record(each) for each in ended], indent=2))
    else:
        _show_table([(each.evaluation.label, each.outcome) for each in ended])
        is_complete = all(each.is_complete for each in ended)
        echo(
            "Next: nightjar sql 'SELECT * FROM leaderboard'" if is_complete else "Next: the same command with --resume"
        )
    for each in ended:
        for error in [str(each.error)] if each.outcome is None else errors_of(each.outcome):
            echo(f"Error: {each.evaluation.label}: {error}", err=True)
    is_cancelled = any(each.outcome is not None and each.outcome.status == "cancelled" for each in ended)
    raise typer.Exit(130 if is_cancelled else int(not all(each.is_complete for each in ended)))


def show_line(outcome: Outcome) -> None:
    """Prints a line for one run, on stdout, and the next command to type."""
    _show_table([(outcome.metadata.name or outcome.metadata.env_id, outcome)])
    echo(f"Next: {next_command(outcome)}")


def _show_table(ended: Sequence[tuple[str, Outcome | None]]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("Evaluation", overflow="fold")
    for heading in ("Reward", "Scored", "Failed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Status", no_wrap=True)
    table.add_column("Run", no_wrap=True)
    for label, outcome in ended:
        table.add_row(Text(harmless(label)), *_cells(outcome))
    Console(markup=False, emoji=False).print(table)


def _cells(outcome: Outcome | None) -> tuple[str, ...]:
    if outcome is None:
        return "–", "–", "–", "not started", "–"
    summary = outcome.summary
    reward = with_error(summary.avg_reward, summary.stderr)
    return reward, f"{summary.scored}/{summary.rollouts}", str(summary.failed), outcome.status, outcome.run_id


def _record(ended: Ended) -> dict[str, Any]:
    config = ended.evaluation.config
    own = {"name": ended.evaluation.label, "env_id": config.env_id, "model": config.model}
    if ended.outcome is None:
        return {**own, "status": "not started", "error": str(ended.error)}
    return {**as_record(ended.outcome), "name": ended.evaluation.label}


def _say_ended(ended: Ended) -> None:
    if ended.outcome is None:
        echo(f"{ended.evaluation.label}: not started", err=True)
        return
    summary = ended.outcome.summary
    reward = with_error(summary.avg_reward, summary.stderr)
    scored = f"{summary.scored} of {summary.rollouts} scored"
    echo(f"{ended.evaluation.label}: {ended.outcome.status}, {scored}, reward {reward}", err=True)
