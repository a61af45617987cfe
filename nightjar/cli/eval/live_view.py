"""What the live view shows of runs in progress, fitted to the height of the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from nightjar.core.text import counted, harmless
from nightjar.engine import Run
from nightjar.evaluation.bars import reward, title

_BAR_WIDTH, _WIDE_BAR_WIDTH = 12, 40
_MOST_KINDS = 3
_FASTEST_SHOWN = 10_000.0
_SHORTEST_NAME = 12
_FEWEST_ROWS = 3
"""An overview with fewer rows than this leaves out the detail below it."""
_HEADER_ROWS, _HINT_ROWS = 2, 1
_WIDEST = 100
"""Columns of a view among other lines. A terminal that becomes narrower wraps what is wider, before the view knows."""
_FEWEST_MESSAGE_ROWS = 5

Lines = list[list[Segment]]


@dataclass(frozen=True)
class Frame:
    """Rendered lines, without spaces at their ends, so that a narrower terminal wraps as few of them as possible."""

    lines: Lines

    def rows(self, width: int) -> int:
        """Returns the number of rows that the lines take on a terminal with this many columns."""
        return sum(max(1, -(-Segment.get_line_length(line) // width)) for line in self.lines)

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            yield from line
            yield Segment.line()


def frame(console: Console, runs: Sequence[Run], chosen: int = 0) -> Frame:
    """Shows one run in detail, below an overview of all runs if there are several. It leaves one row free."""
    room = console.height - 1
    width = min(console.width, _WIDEST)
    detail = _rendered(console, Group(_heading(runs[chosen]), _detail(runs[chosen])), width)
    if len(runs) == 1:
        return Frame([_without_end(line) for line in detail[:room]])
    left = room - _HEADER_ROWS - _HINT_ROWS
    if left - len(detail) < min(_FEWEST_ROWS, len(runs)):
        detail = []
    elif left - len(detail) > len(runs):
        detail = [[], *detail]
    lines = _rendered(console, _overview(runs, chosen, left - len(detail)), width)
    lines += [*detail, *_rendered(console, _hint(), width)]
    return Frame([_without_end(line) for line in lines[:room]])


def full_screen(console: Console, runs: Sequence[Run], chosen: int, messages: Sequence[str]) -> Frame:
    """Shows the live view on the whole screen, with the last messages below it."""
    detail = _rendered(console, Panel(_detail(runs[chosen]), title=_heading(runs[chosen]), title_align="left"))
    lines: Lines = []
    if len(runs) > 1:
        reserved = _FEWEST_MESSAGE_ROWS if messages else 0
        left = console.height - _HEADER_ROWS - _HINT_ROWS - reserved
        if left - len(detail) < min(_FEWEST_ROWS, len(runs)):
            detail = []
        lines += _rendered(console, _overview(runs, chosen, left - len(detail), is_wide=True))
        lines += _rendered(console, _hint())
    lines += detail
    if (left := console.height - len(lines)) >= _FEWEST_MESSAGE_ROWS:
        shown = Text("\n", no_wrap=True, overflow="ellipsis").join(
            Text(harmless(line)) for line in messages[2 - left :]
        )
        nothing = Text("Log lines and prints appear here, and again when the view closes.", style="dim")
        lines += _rendered(
            console, Panel(shown if messages else nothing, title="Messages", title_align="left", height=left)
        )
    return Frame(lines[: console.height])


def _rendered(console: Console, what: RenderableType, width: int | None = None) -> Lines:
    return console.render_lines(what, console.options.update(width=width or console.width), pad=False)


def _without_end(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.rstrip():
        line = line[:-1]
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []


def _hint() -> Text:
    return Text("j and k, or the arrow keys: select an evaluation", style="dim", no_wrap=True, overflow="ellipsis")


def _heading(run: Run) -> Text:
    return Text.assemble((title(run), "bold"), (f" · run {run.run_id}", "dim"), no_wrap=True, overflow="ellipsis")


class _Name:
    """A name on one line. If it is too long, its middle is left out: names of a suite often differ at their ends."""

    def __init__(self, name: str, style: str) -> None:
        self._name = Text(name, style=style, no_wrap=True, overflow="crop")

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        width = min(self._name.cell_len, options.max_width)
        return Measurement(min(width, _SHORTEST_NAME), width)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self._name.cell_len <= width:
            yield self._name
            return
        end = (width - 1) // 2
        yield Text.assemble(self._name[: width - 1 - end], "…", self._name[len(self._name) - end :], no_wrap=True)


def _overview(runs: Sequence[Run], chosen: int, most_rows: int, *, is_wide: bool = False) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 1), expand=is_wide)
    table.add_column("Evaluation", ratio=1 if is_wide else None)
    table.add_column("", no_wrap=True, width=_BAR_WIDTH)
    for heading in ("Scored", "Failed", "Reward", "Rate", "Left"):
        table.add_column(heading, justify="right", no_wrap=True)
    numbers = _fitting(runs, chosen, most_rows)
    for number in numbers:
        run, progress = runs[number], runs[number].progress
        has_ended = run.metadata.finished_at is not None
        table.add_row(
            _Name(title(run), "bold" if number == chosen else ""),
            ProgressBar(total=progress.total, completed=progress.done, width=_BAR_WIDTH),
            f"{progress.all_scored}/{progress.total}",
            str(progress.failed),
            reward(run),
            "" if has_ended else f"{progress.rate:.1f}/s",
            run.metadata.status if has_ended else _left(run) or "–",
        )
    rest = len(runs) - len(numbers)
    more = [Text(f"… and {counted(rest, 'more evaluation')}", style="dim")] if rest else []
    return Group(_totals(runs), table, *more)


def _fitting(runs: Sequence[Run], chosen: int, most_rows: int) -> list[int]:
    """Returns the positions of the runs that are shown: all, or else those in progress near the chosen one."""
    if len(runs) <= most_rows:
        return list(range(len(runs)))
    most = max(1, most_rows - 1)
    active = [number for number, run in enumerate(runs) if run.metadata.finished_at is None or number == chosen]
    if len(active) <= most:
        ended = [number for number in range(len(runs)) if number not in active]
        return sorted([*active, *ended[len(ended) - (most - len(active)) :]])
    start = min(max(0, active.index(chosen) - most // 2), len(active) - most)
    return active[start : start + most]


def _totals(runs: Sequence[Run]) -> Text:
    active = [run.progress for run in runs if run.metadata.finished_at is None]
    done, total = sum(run.progress.done for run in runs), sum(run.progress.total for run in runs)
    rate = sum(progress.rate for progress in active)
    parts = [
        f"{len(runs) - len(active)} ended, {len(active)} in progress",
        f"{done:,} of {counted(total, 'rollout')} done",
        f"{rate:.1f}/s",
    ]
    if rate:
        parts.append(f"{_duration((total - done) / rate)} left")
    return Text(" · ".join(parts), no_wrap=True, overflow="ellipsis")


def _detail(run: Run) -> Table:
    progress, metadata = run.progress, run.metadata
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", ProgressBar(total=progress.total, completed=progress.done, width=_WIDE_BAR_WIDTH))
    size = f"{counted(metadata.num_examples, 'example')} × {metadata.rollouts_per_example}"
    failed = f", {progress.failed} failed" if progress.failed else ""
    waiting = f", {progress.unscored} generated, not scored yet" if progress.unscored else ""
    table.add_row("Rollouts", f"{progress.all_scored} of {progress.total} scored ({size}){failed}{waiting}")
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
    return table


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
    return "" if seconds is None else _duration(seconds)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def status_line(run: Run) -> str:
    progress = run.progress
    if progress.waiting:
        return harmless(f"waiting {progress.waiting}")
    parts = [f"reward {reward(run)}", counted(progress.failed, "error"), f"{progress.rate:.1f}/s"]
    if progress.unscored:
        parts.insert(0, f"{progress.unscored} generated, not scored yet")
    if progress.retries:
        parts.insert(2, f"{progress.retries} retries")
    if left := _left(run):
        parts.append(f"{left} left")
    return " · ".join(parts)
