"""The progress of runs: a live view on a terminal, a line every ten seconds elsewhere, or bars of tqdm."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Literal, TextIO, TypeAlias, cast

import typer
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType

from nightjar.cli.eval.live_view import Frame, frame, full_screen, status_line
from nightjar.cli.terminal import echo
from nightjar.core.secrecy import hidden_in_log
from nightjar.core.text import counted
from nightjar.engine import Run, open_runs
from nightjar.evaluation.bars import RunBars, title
from nightjar.hosting.server import page_of
from nightjar.hosting.temporary_server import is_temporary

logger = logging.getLogger(__name__)

Style: TypeAlias = Literal["auto", "screen", "plain", "none"]

_FRAME_SECONDS = 0.25
_LINE_SECONDS = 10.0
_MOST_MESSAGES = 1_000
_NEXT_KEYS, _PREVIOUS_KEYS = frozenset({"j", "\t", "\x1b[B", "\x1b[C"}), frozenset({"k", "\x1b[A", "\x1b[D"})


def style_of(*, tui: bool, debug: bool, no_progress: bool) -> Style:
    """Raises ``BadParameter`` if flags contradict each other."""
    styles: dict[str, Style] = {"--tui": "screen", "--debug": "plain", "--no-progress": "none"}
    is_given = {"--tui": tui, "--debug": debug, "--no-progress": no_progress}
    given = {flag: style for flag, style in styles.items() if is_given[flag]}
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other")
    return next(iter(given.values()), "auto")


@asynccontextmanager
async def display(style: Style = "auto") -> AsyncIterator[None]:
    """Shows the progress of the runs of this process on stderr, from the first run on, until the block ends."""
    task = asyncio.get_running_loop().create_task(_Display(style).show())
    try:
        yield
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):
            logger.warning("The progress display stopped: %r", ended)


class _Display:
    def __init__(self, style: Style) -> None:
        self._console = Console(stderr=True, file=sys.stderr)
        self._style = style
        self._runs: dict[str, Run] = {}
        self._selected: str | None = None

    async def show(self) -> None:
        if self._style == "none":
            return
        while not open_runs():  # noqa: ASYNC110 - it may be opened in another thread
            await asyncio.sleep(_FRAME_SECONDS)
        if self._style == "plain":
            await self._show_bars()
        elif not self._console.is_terminal:
            await self._show_lines()
        else:
            with _keys(self._select):
                await (self._show_screen if self._style == "screen" else self._show_live)()

    async def _show_live(self) -> None:
        """Draws below the lines that are printed meanwhile. At the end, the results take the place of the view."""
        console, last, width = self._console, Frame([]), self._console.width
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                self._look()
                if console.width < width:
                    _erase_rows(console, last.rows(console.width) - last.rows(width))
                width, last = console.width, frame(console, list(self._runs.values()), self._chosen)
                live.update(last, refresh=True)
                await asyncio.sleep(_FRAME_SECONDS)

    async def _show_screen(self) -> None:
        with (
            _collected_messages() as messages,
            Live(
                console=self._console, auto_refresh=False, screen=True, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            while True:
                self._look()
                view = full_screen(self._console, list(self._runs.values()), self._chosen, list(messages))
                live.update(view, refresh=True)
                await asyncio.sleep(_FRAME_SECONDS)

    async def _show_lines(self) -> None:
        loop = asyncio.get_running_loop()
        said_at = loop.time()
        while True:
            for run in self._look():
                echo(f"{title(run)}: {counted(run.progress.total, 'rollout')}, run {run.run_id}", err=True)
                if run.progress.already_done:
                    echo(f"{run.progress.already_done} of them already done", err=True)
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

    @property
    def _chosen(self) -> int:
        """The position of the run that the user has selected; otherwise, of the first run in progress."""
        active = [run.run_id for run in self._runs.values() if run.metadata.finished_at is None]
        return [*self._runs].index(self._selected or (active or [*self._runs])[0])

    def _select(self, key: str) -> None:
        step = (key in _NEXT_KEYS) - (key in _PREVIOUS_KEYS)
        if step and self._runs:
            self._selected = [*self._runs][(self._chosen + step) % len(self._runs)]


def _erase_rows(console: Console, count: int) -> None:
    """Erases rows above the cursor: those that lines took when the terminal became narrower and wrapped them."""
    up: list[Any] = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)]
    console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *(up * count)))


class _Collector:
    """A stream that keeps the lines written to it. In everything else, it is the stream in whose place it is."""

    def __init__(self, stream: TextIO, lines: deque[str]) -> None:
        self._stream = stream
        self._lines = lines
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = f"{self._begun}{text}".split("\n")
        self._lines.extend(whole)
        return len(text)

    def flush(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _collected_messages() -> Iterator[deque[str]]:
    """Collects the lines written to stdout and stderr in the block, and writes the last ones to stderr at its end."""
    lines, before = deque[str](maxlen=_MOST_MESSAGES), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = (cast("TextIO", _Collector(stream, lines)) for stream in before)
    try:
        yield lines
    finally:
        sys.stdout, sys.stderr = before
        for line in lines:
            echo(line, err=True)


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
