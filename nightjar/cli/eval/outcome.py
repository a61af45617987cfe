"""The end of ``nightjar eval run``: a closing panel for one run, a table for several, and the exit code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nightjar.cli.eval.live import page_in_prefect
from nightjar.cli.output import columns, print_labelled
from nightjar.cli.terminal import echo
from nightjar.core.failures import FailureClass, advice_line
from nightjar.core.text import harmless
from nightjar.engine.runs import RunDirectory
from nightjar.errors import RunError
from nightjar.evaluation import EndedEvaluation, Outcome
from nightjar.warehouse import resolve_warehouse
from nightjar.warehouse.location import shown


def show_outcome(outcome: Outcome) -> None:
    console = Console(markup=False, emoji=False)
    metadata = outcome.metadata
    panel = Panel(
        _summary_table(outcome),
        title=Text(harmless(f"{metadata.env_id} | {metadata.model}")),
        subtitle=f"run {outcome.run_id}: {outcome.status}",
        expand=False,
        padding=(1, 2),
    )
    console.print(panel)
    where = outcome.warehouse if outcome.unpublished is None else f"not published in {outcome.warehouse}"
    print_labelled(
        {
            "Rescored": metadata.rescored_from,
            "Results": outcome.path,
            "Joined": outcome.joined,
            "Warehouse": where,
            "Hub": outcome.hub_url,
            "Prefect": page_in_prefect(metadata.flow_run_id),
            "Next": next_command(outcome),
        }
    )


def _summary_table(outcome: Outcome) -> Table:
    summary, metadata = outcome.summary, outcome.metadata
    table = Table.grid(padding=(0, 3))
    size = f"{metadata.num_examples} examples × {metadata.rollouts_per_example}"
    table.add_row("Rollouts", f"{summary.scored} of {summary.rollouts} scored ({size})")
    table.add_row("Avg reward", with_error(summary.avg_reward, summary.stderr))
    for name, value in summary.avg_metrics.items():
        table.add_row(harmless(f"  {name}"), f"{value:.4g}")
    for label, curve in (("pass@k", summary.pass_at_k), ("pass^k", summary.pass_all_k)):
        if curve:
            values = "  ".join(f"{k}: {value:.3f}" for k, value in curve.items())
            table.add_row(label, f"{values}  (over {summary.complete_examples} examples)")
    table.add_row("Errors", harmless(_errors(outcome)))
    if summary.truncated:
        table.add_row("Truncated", str(summary.truncated))
    if summary.usage:
        table.add_row("Tokens", f"{summary.usage['input_tokens']:,.0f} in, {summary.usage['output_tokens']:,.0f} out")
    if summary.usage and "cached_input_tokens" in summary.usage:
        cached = (summary.usage["cached_input_tokens"], summary.usage["cached_output_tokens"])
        table.add_row("From cache", "{:,.0f} in, {:,.0f} out".format(*cached))
    table.add_row("Runtime", f"{(metadata.time_ms or 0) / 1000:.1f} s")
    return table


def with_error(mean: float | None, stderr: float | None) -> str:
    if mean is None:
        return "– (nothing scored)"
    return f"{mean:.4f}" + ("" if stderr is None else f" ± {stderr:.4f}")


def _errors(outcome: Outcome) -> str:
    summary = outcome.summary
    missing = summary.rollouts - summary.scored - summary.failed
    parts = [f"{count} × {name}" for name, count in summary.errors.items()]
    parts += [type(outcome.error).__name__] if outcome.error is not None else []
    parts += [f"{missing} missing"] if missing else []
    return ", ".join(parts) or "none"


def next_command(outcome: Outcome) -> str:
    if outcome.status != "completed" and outcome.metadata.rescored_from:
        if (words := outcome.rescoring) is not None:
            return shlex.join(words)
        return f"resume the original run {outcome.metadata.rescored_from}, and score it again"
    if outcome.failures[:1] == [FailureClass.JUDGE]:
        return shlex.join(["nightjar", "eval", "rescore", str(outcome.path)])
    if outcome.status != "completed":
        return f"the same command with --resume {shlex.quote(str(outcome.path))}"
    is_default = outcome.warehouse == shown(resolve_warehouse())
    options = [] if is_default else ["--warehouse", outcome.warehouse]
    next_step = ["sql", "SELECT * FROM leaderboard"] if outcome.unpublished is None else ["publish", str(outcome.path)]
    return shlex.join(["nightjar", *next_step, *options])


def finish(outcome: Outcome, as_json: bool, show: Callable[[Outcome], None] = show_outcome) -> None:
    if as_json:
        echo(json.dumps(as_record(outcome), indent=2))
    else:
        show(outcome)
    for error in errors_of(outcome):
        echo(f"Error: {error}", err=True)
    for kind in outcome.failures if not outcome.is_complete else ():
        echo(advice_line(kind), err=True)
    raise typer.Exit(130 if outcome.status == "cancelled" else int(not outcome.is_complete))


def as_record(outcome: Outcome) -> dict[str, Any]:
    return {**RunDirectory(outcome.path).read_metadata(), "path": str(outcome.path)}


def errors_of(outcome: Outcome) -> Iterator[str]:
    if isinstance(outcome.error, RunError) and outcome.status != "cancelled":
        yield str(outcome.error)
    elif (first := next(iter(outcome.summary.error_examples.values()), None)) is not None:
        failed = f"{outcome.summary.failed} of {outcome.summary.rollouts} rollouts failed"
        yield f"{failed}. The first: {first.partition(chr(10))[0]}"
    yield from (str(reason) for reason in (outcome.unpublished, outcome.unpushed) if reason is not None)


def finish_together(ended: Sequence[EndedEvaluation], as_json: bool) -> None:
    if as_json:
        echo(json.dumps([_record(each) for each in ended], indent=2))
    else:
        _show_table([(each.evaluation.label, each.outcome) for each in ended])
        is_complete = all(each.is_complete for each in ended)
        command = "nightjar sql 'SELECT * FROM leaderboard'" if is_complete else "the same command with --resume"
        echo(f"Next: {command}")
    for each in ended:
        for error in [str(each.error)] if each.outcome is None else errors_of(each.outcome):
            echo(f"Error: {each.evaluation.label}: {error}", err=True)
    is_cancelled = any(each.outcome is not None and each.outcome.status == "cancelled" for each in ended)
    raise typer.Exit(130 if is_cancelled else int(not all(each.is_complete for each in ended)))


def show_line(outcome: Outcome) -> None:
    _show_table([(outcome.metadata.name or outcome.metadata.env_id, outcome)])
    echo(f"Next: {next_command(outcome)}")


def _show_table(ended: Sequence[tuple[str, Outcome | None]]) -> None:
    headings = ("Evaluation", "Reward", "Scored", "Failed", "Status", "Run")
    rows = [(label, *_cells(outcome)) for label, outcome in ended]
    table = columns(headings, rows, numbers=headings[1:4], folded=headings[:1], has_rule=False)
    Console(markup=False, emoji=False).print(table)


def _cells(outcome: Outcome | None) -> tuple[str, ...]:
    if outcome is None:
        return "–", "–", "–", "not started", "–"
    summary = outcome.summary
    reward = with_error(summary.avg_reward, summary.stderr)
    return reward, f"{summary.scored}/{summary.rollouts}", str(summary.failed), outcome.status, outcome.run_id


def _record(ended: EndedEvaluation) -> dict[str, Any]:
    config = ended.evaluation.config
    own = {"name": ended.evaluation.label, "env_id": config.env_id, "model": config.model}
    if ended.outcome is None:
        return {**own, "status": "not started", "error": str(ended.error)}
    return {**as_record(ended.outcome), "name": ended.evaluation.label}
