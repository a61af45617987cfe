"""The progress of runs: a live view on a terminal, a line every ten seconds elsewhere, or bars of tqdm."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Literal, TypeAlias

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nightjar.cli.terminal import echo
from nightjar.core.secrecy import hidden_in_log
from nightjar.core.text import harmless
from nightjar.engine import Run, open_runs
from nightjar.evaluation.bars import RunBars, reward, title
from nightjar.hosting.server import page_of
from nightjar.hosting.temporary_server import is_temporary

logger = logging.getLogger(__name__)

Style: TypeAlias = Literal["auto", "screen", "plain", "none"]

_FRAME_SECONDS = 0.25
_LINE_SECONDS = 10.0
_BAR_WIDTH = 12
_MOST_KINDS = 3
_FASTEST_SHOWN = 10_000.0
_NEXT_KEYS, _PREVIOUS_KEYS = frozenset({"j", "\t", "\x1b[B", "\x1b[C"}), frozenset({"k", "\x1b[A", "\x1b[D"})


def style_of(*, tui: bool, debug: bool, no_progress: bool) -> Style:
    """Raises ``BadParameter`` if flags contradict each other."""
    styles: dict[str, Style] = {"--tui": "screen", "--debug": "plain", "--no-progress": "none"}
    is_given = {"--tui": tui, "--debug": debug, "--no-progress": no_progress}
    given = {flag: style for flag, style in styles.items() if is_given[flag]}
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other")
    return next(iter(given.values()), "auto")


@contextmanager
def display(style: Style = "auto") -> Iterator[None]:
    """Shows the progress of the runs of this process on stderr, from the first run on. Requires an event loop."""
    task = asyncio.get_running_loop().create_task(_Display(style).show())
    try:
        yield
    finally:
        if task.done() and (broken := task.exception()) is not None:
            logger.warning("The progress display stopped: %r", broken)
        task.cancel()


class _Display:
    def __init__(self, style: Style) -> None:
        self._console = Console(stderr=True)
        self._style = style
        self._runs: dict[str, Run] = {}
        self._chosen = 0

    async def show(self) -> None:
        if self._style == "none":
            return
        while not open_runs():  # noqa: ASYNC110 - it may be opened in another thread
            await asyncio.sleep(_FRAME_SECONDS)
        if self._style == "plain":
            await self._show_bars()
        else:
            await (self._show_live if self._console.is_terminal else self._show_lines)()

    async def _show_live(self) -> None:
        is_screen = self._style == "screen"
        with _keys(self._choose), Live(console=self._console, auto_refresh=False, screen=is_screen) as live:
            try:
                while True:
                    self._look()
                    live.update(view(list(self._runs.values()), self._chosen), refresh=True)
                    await asyncio.sleep(_FRAME_SECONDS)
            finally:
                live.update(view(list(self._runs.values()), self._chosen), refresh=True)

    async def _show_lines(self) -> None:
        loop = asyncio.get_running_loop()
        said_at = loop.time()
        while True:
            for run in self._look():
                echo(f"{title(run)}: {run.progress.total} rollouts, run {run.run_id}", err=True)
                if run.progress.already_done:
                    echo(f"{run.progress.already_done} of them are already done", err=True)
            if loop.time() - said_at >= _LINE_SECONDS:
                said_at = loop.time()
                for run in open_runs():
                    label = f"{title(run)}: " if len(self._runs) > 1 else ""
                    echo(f"{label}{run.progress.done}/{run.progress.total} {status_line(run)}", err=True)
            await asyncio.sleep(_FRAME_SECONDS)

    async def _show_bars(self) -> None:
        from tqdm import tqdm
        from tqdm.contrib.logging import logging_redirect_tqdm

        log = logging.getLogger("nightjar")
        with logging_redirect_tqdm([log]), RunBars(partial(tqdm, file=sys.stderr)) as bars:
            for handler in log.handlers:  # tqdm replaces the handlers in this block
                handler.addFilter(hidden_in_log)
            while True:
                for run in self._look():
                    bars.add(run)
                bars.show()
                await asyncio.sleep(_FRAME_SECONDS)

    def _look(self) -> list[Run]:
        """Returns the runs that have started since the last call, after printing the URLs of their pages in Prefect."""
        begun = [run for run in open_runs() if run.run_id not in self._runs]
        self._runs.update({run.run_id: run for run in begun})
        for run in begun:
            if page := page_in_prefect(run.metadata.flow_run_id):
                echo(f"Prefect: {page}", err=True)
        return begun

    def _choose(self, key: str) -> None:
        step = (key in _NEXT_KEYS) - (key in _PREVIOUS_KEYS)
        self._chosen = (self._chosen + step) % max(1, len(self._runs))


def view(runs: Sequence[Run], chosen: int = 0) -> RenderableType:
    """Shows one run in detail, below an overview of all runs if there are several."""
    detail = _detail(runs[chosen])
    if len(runs) == 1:
        return detail
    hint = Text("j and k, or the arrow keys: select an evaluation", style="dim")
    return Group(_overview(runs, chosen), detail, hint)


def _overview(runs: Sequence[Run], chosen: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("Evaluation", overflow="fold", ratio=1)
    table.add_column("", no_wrap=True, width=_BAR_WIDTH)
    for heading in ("Done", "Reward", "Failed", "Rate", "Left"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, run in enumerate(runs):
        progress = run.progress
        table.add_row(
            Text(title(run), style="bold" if number == chosen else ""),
            ProgressBar(total=progress.total, completed=progress.done, width=_BAR_WIDTH),
            f"{progress.done}/{progress.total}",
            reward(run),
            str(progress.failed),
            f"{progress.rate:.1f}/s",
            _left(run) or "–" if run.metadata.finished_at is None else run.metadata.status,
        )
    return table


def _detail(run: Run) -> Panel:
    progress, metadata = run.progress, run.metadata
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_row("", ProgressBar(total=progress.total, completed=progress.done))
    size = f"{metadata.num_examples} examples × {metadata.rollouts_per_example}"
    waiting = f", {progress.unscored} generated, not scored yet" if progress.unscored else ""
    table.add_row("Rollouts", f"{progress.done}/{progress.total} ({size}){waiting}")
    table.add_row("Reward", "–" if progress.avg_reward is None else f"{progress.avg_reward:.4f}")
    left = _left(run)
    table.add_row("Rate", f"{progress.rate:.1f}/s" + (f", {left} left" if left else ""))
    if progress.waiting:
        table.add_row("Waiting", Text(harmless(progress.waiting), style="yellow"))
    table.add_row("Requests", " · ".join(_requests(run)))
    budget = f" · {run.budget}" if run.budget is not None else ""
    table.add_row("Tokens", f"{progress.input_tokens:,} in, {progress.output_tokens:,} out{budget}")
    for label, text in _errors(run):
        table.add_row(label, Text(harmless(text), style="red"))
    return Panel(table, title=Text(title(run)), subtitle=f"run {run.run_id}", expand=True)


def _requests(run: Run) -> Iterator[str]:
    for pace in run.paces():
        ceiling = "" if pace.places.ceiling == float("inf") else f" of {pace.places.ceiling:.0f}"
        rate = "" if pace.rate > _FASTEST_SHOWN else f", at most {pace.rate:.1f}/s"
        yield f"{pace.places.in_use} in flight{ceiling}{rate}"
    progress = run.progress
    again = [(progress.refused, "refused"), (progress.retries, "again")]
    yield ", ".join([f"{progress.requests} sent", *(f"{count} {what}" for count, what in again if count)])


def _errors(run: Run) -> Iterator[tuple[str, str]]:
    progress = run.progress
    kinds = sorted(progress.errors.items(), key=lambda kind: -kind[1][0])
    for name, (count, message) in kinds[:_MOST_KINDS]:
        yield "Failed", f"{count} × {name}: {_one_line(message)}"
    if progress.last_failure and progress.retries:
        yield "Retried", _one_line(progress.last_failure)


def _one_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _left(run: Run) -> str:
    seconds = run.progress.seconds_left
    return "" if seconds is None else str(timedelta(seconds=round(seconds)))


def status_line(run: Run) -> str:
    progress = run.progress
    if progress.waiting:
        return harmless(f"waiting {progress.waiting}")
    parts = [f"reward {reward(run)}", f"{progress.failed} errors", f"{progress.rate:.1f}/s"]
    if progress.unscored:
        parts.insert(0, f"{progress.unscored} generated, not scored yet")
    if progress.retries:
        parts.insert(2, f"{progress.retries} retries")
    if left := _left(run):
        parts.append(f"{left} left")
    return " · ".join(parts)


def page_in_prefect(flow_run_id: str | None) -> str | None:
    """Returns None without a flow run, or on a temporary server."""
    url = os.environ.get("PREFECT_API_URL")
    return page_of(flow_run_id, url) if flow_run_id and url and not is_temporary(url) else None


@contextmanager
def _keys(pressed: Callable[[str], None]) -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield
        return
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, lambda: pressed(os.read(descriptor, 16).decode(errors="replace")))
    try:
        yield
    finally:
        with suppress(OSError):
            loop.remove_reader(descriptor)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
