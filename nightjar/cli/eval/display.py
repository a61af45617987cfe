"""What is on the screen while a run goes on, and when it has ended."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from nightjar.cli.terminal import echo
from nightjar.engine import Run, runs_under_way
from nightjar.evaluation import Outcome
from nightjar.hosting.server import page_of
from nightjar.hosting.temporary_server import is_temporary
from nightjar.runs import Summary
from nightjar.terminal import harmless
from nightjar.warehouse import resolve_warehouse
from nightjar.warehouse.location import shown

_FRAME_SECONDS = 0.25
_LINE_SECONDS = 10.0
_BESIDE_TITLE = 40
_SHORTEST_TITLE = 20


class RunDisplay:
    """Shows how far the run of this process is, on stderr: a live bar on a terminal, a line now and then elsewhere.

    A context manager, in an event loop; it shows nothing until there is a run.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    def __enter__(self) -> Self:
        """Starts to look for the run."""
        self._task = asyncio.get_running_loop().create_task(self._show())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stops showing."""
        self._task.cancel()

    async def _show(self) -> None:
        while not (runs := runs_under_way()):  # noqa: ASYNC110 - it may be opened in another thread
            await asyncio.sleep(_FRAME_SECONDS)
        if page := _page(runs[0].metadata.flow_run_id):
            self._print_line(f"In Prefect's UI: {page}")
        await (self._show_live if self._console.is_terminal else self._show_lines)(runs[0])

    async def _show_live(self, run: Run) -> None:
        bar = _Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=self._console,
            auto_refresh=False,
        )
        title = Text(_title(run))
        title.truncate(max(_SHORTEST_TITLE, self._console.width - _BESIDE_TITLE), overflow="ellipsis")
        entry = bar.add_task(title.plain, total=run.progress.total, status="")
        with bar:
            try:
                while True:
                    bar.update(entry, completed=run.progress.done, status=status_line(run))
                    bar.refresh()
                    await asyncio.sleep(_FRAME_SECONDS)
            finally:
                bar.update(entry, completed=run.progress.done, status=status_line(run))

    async def _show_lines(self, run: Run) -> None:
        self._print_line(f"{_title(run)}: {run.progress.total} rollouts, run {run.run_id}")
        if run.progress.already_done:
            self._print_line(f"{run.progress.already_done} of them are done already")
        while True:
            await asyncio.sleep(_LINE_SECONDS)
            self._print_line(f"{run.progress.done}/{run.progress.total} {status_line(run)}")

    def _print_line(self, text: str) -> None:
        echo(text, err=True)


class _Bar(Progress):
    """A bar with a line for the status below it, because both together are too long for 80 columns."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Gives the bar, then the status."""
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(f"  {task.fields['status']}", no_wrap=True, overflow="ellipsis")


def _page(flow_run_id: str | None) -> str | None:
    """Returns the page of a flow run; None of a run without one, or on a temporary server."""
    url = os.environ.get("PREFECT_API_URL")
    return page_of(flow_run_id, url) if flow_run_id and url and not is_temporary(url) else None


def _title(run: Run) -> str:
    return harmless(f"{run.metadata.env_id} | {run.metadata.model}")


def status_line(run: Run) -> str:
    """Returns how far a run is, in a line."""
    progress = run.progress
    reward = "–" if progress.avg_reward is None else f"{progress.avg_reward:.3f}"
    parts = [f"reward {reward}", f"{progress.failed} errors", f"{progress.rate:.1f}/s"]
    if progress.unscored:
        parts.insert(0, f"{progress.unscored} generated, not scored yet")
    if progress.retries:
        parts.insert(2, f"{progress.retries} retries")
    if progress.seconds_left is not None:
        parts.append(f"{timedelta(seconds=round(progress.seconds_left))} left")
    return " · ".join(parts)


def show_outcome(outcome: Outcome) -> None:
    """Prints the closing panel and the next command to type, on stdout."""
    console = Console(markup=False, emoji=False)
    metadata = outcome.metadata
    panel = Panel(
        _summary_table(outcome.summary, metadata.time_ms or 0),
        title=Text(harmless(f"{metadata.env_id} | {metadata.model}")),
        subtitle=f"run {outcome.run_id}: {outcome.status}",
        expand=False,
        padding=(1, 2),
    )
    console.print(panel)
    for label, text in (
        ("Results", outcome.path),
        ("Warehouse", outcome.warehouse if outcome.unpublished is None else f"not published in {outcome.warehouse}"),
        ("Prefect", _page(metadata.flow_run_id)),
        ("Next", next_command(outcome)),
    ):
        if text is not None:
            echo(f"{label + ':':<11}{text}")


def _summary_table(summary: Summary, time_ms: int) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_row("Rollouts", f"{summary.scored} of {summary.rollouts} scored")
    table.add_row("Avg reward", with_error(summary.avg_reward, summary.stderr))
    for name, value in summary.avg_metrics.items():
        table.add_row(harmless(f"  {name}"), f"{value:.4g}")
    for label, curve in (("pass@k", summary.pass_at_k), ("pass^k", summary.pass_all_k)):
        if curve:
            table.add_row(label, "  ".join(f"{k}: {value:.3f}" for k, value in curve.items()))
    table.add_row("Errors", harmless(_counts(summary.errors)) or "none")
    if summary.truncated:
        table.add_row("Truncated", str(summary.truncated))
    if summary.usage:
        table.add_row(
            "Tokens",
            f"{summary.usage['input_tokens']:,.0f} in, {summary.usage['output_tokens']:,.0f} out",
        )
    table.add_row("Runtime", f"{time_ms / 1000:.1f} s")
    return table


def with_error(mean: float | None, stderr: float | None) -> str:
    """Returns a mean with its standard error."""
    if mean is None:
        return "– (nothing scored)"
    return f"{mean:.4f}" + ("" if stderr is None else f" ± {stderr:.4f}")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in counts.items())


def next_command(outcome: Outcome) -> str:
    """Returns what can be typed next."""
    if outcome.status != "completed":
        return f"the same command with --resume {shlex.quote(str(outcome.path))}"
    is_default = outcome.warehouse == shown(resolve_warehouse())
    options = [] if is_default else ["--warehouse", outcome.warehouse]
    next_step = ["sql", "SELECT * FROM leaderboard"] if outcome.unpublished is None else ["publish", str(outcome.path)]
    return shlex.join(["nightjar", *next_step, *options])
