"""What the commands of ``nightjar warehouse`` print: tables, JSON, sizes, and how far long work is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from nightjar.warehouse.writing.bulk import Progress

_LINE_SECONDS = 10.0
_KILO = 1000


def print_json(value: Any) -> None:
    """Prints a record, or a list of them, as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def print_table(columns: Sequence[str], types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Prints rows as ``nightjar sql`` does."""
    from nightjar.cli.sql.table import print_table as print_result
    from nightjar.warehouse import QueryResult

    print_result(QueryResult(tuple(columns), tuple(types), list(rows)), sys.stdout, is_full=False)


def size(count: float) -> str:
    """Returns a number of bytes for the eyes.

    Example:
        >>> size(999), size(12_345_678)
        ('999 B', '12.3 MB')
    """
    units = ("B", "kB", "MB", "GB", "TB")
    position = 0
    while count >= _KILO and position < len(units) - 1:
        count, position = count / _KILO, position + 1
    return f"{count:.1f} {units[position]}" if position else f"{count:.0f} B"


def number(count: int, noun: str) -> str:
    """Returns a count with its noun.

    Example:
        >>> number(1, "run"), number(2_000, "run")
        ('1 run', '2,000 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextmanager
def progress_of(title: str) -> Iterator[Progress]:
    """Shows on stderr how far something is: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        entry = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(entry, completed=done, total=total)


def _lines(title: str) -> Progress:
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LINE_SECONDS:
            last = now
            typer.echo(f"{title}: {done:,} of {total:,}", err=True)

    return show


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
