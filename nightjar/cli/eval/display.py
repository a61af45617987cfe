"""What is on the screen when a run has ended."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nightjar.cli.eval.live import page_in_prefect
from nightjar.cli.terminal import echo
from nightjar.evaluation import Outcome
from nightjar.evaluation.failures import FailureClass
from nightjar.terminal import harmless
from nightjar.warehouse import resolve_warehouse
from nightjar.warehouse.location import shown


def show_outcome(outcome: Outcome) -> None:
    """Prints the closing panel and the next command to type, on stdout."""
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
    for label, text in (
        ("Rescored", outcome.metadata.rescored_from),
        ("Results", outcome.path),
        ("Joined", outcome.joined),
        ("Warehouse", outcome.warehouse if outcome.unpublished is None else f"not published in {outcome.warehouse}"),
        ("Hub", outcome.hub_url),
        ("Prefect", page_in_prefect(metadata.flow_run_id)),
        ("Next", next_command(outcome)),
    ):
        if text is not None:
            echo(f"{label + ':':<11}{text}")


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
        table.add_row(
            "Tokens",
            f"{summary.usage['input_tokens']:,.0f} in, {summary.usage['output_tokens']:,.0f} out",
        )
    if summary.usage and "cached_input_tokens" in summary.usage:
        cached = (summary.usage["cached_input_tokens"], summary.usage["cached_output_tokens"])
        table.add_row("From cache", "{:,.0f} in, {:,.0f} out".format(*cached))
    table.add_row("Runtime", f"{(metadata.time_ms or 0) / 1000:.1f} s")
    return table


def with_error(mean: float | None, stderr: float | None) -> str:
    """Returns a mean with its standard error."""
    if mean is None:
        return "– (nothing scored)"
    return f"{mean:.4f}" + ("" if stderr is None else f" ± {stderr:.4f}")


def _errors(outcome: Outcome) -> str:
    """Returns what failed: of rollouts, what stopped the run, or what is missing."""
    summary = outcome.summary
    missing = summary.rollouts - summary.scored - summary.failed
    parts = [f"{count} × {name}" for name, count in summary.errors.items()]
    parts += [type(outcome.error).__name__] if outcome.error is not None else []
    parts += [f"{missing} not done"] if missing else []
    return ", ".join(parts) or "none"


def next_command(outcome: Outcome) -> str:
    """Returns what can be typed next."""
    if outcome.status != "completed" and outcome.metadata.rescored_from:
        if (words := outcome.rescoring) is not None:
            return shlex.join(words)
        return f"resume run {outcome.metadata.rescored_from}, whose rollouts these are, and score it again"
    if outcome.failures[:1] == [FailureClass.JUDGE]:
        return shlex.join(["nightjar", "eval", "rescore", str(outcome.path)])
    if outcome.status != "completed":
        return f"the same command with --resume {shlex.quote(str(outcome.path))}"
    is_default = outcome.warehouse == shown(resolve_warehouse())
    options = [] if is_default else ["--warehouse", outcome.warehouse]
    next_step = ["sql", "SELECT * FROM leaderboard"] if outcome.unpublished is None else ["publish", str(outcome.path)]
    return shlex.join(["nightjar", *next_step, *options])
