"""What the commands of ``nightjar warehouse`` print: tables, lists, JSON, and how far long work is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from nightjar.cli.sql.table import print_table
from nightjar.cli.terminal import echo
from nightjar.warehouse import QueryResult
from nightjar.warehouse.writing.bulk import Progress

_LINE_SECONDS = 10.0
_FEW = 20
_TYPES = {int: "BIGINT", float: "DOUBLE", date: "DATE"}


def print_json(value: Any) -> None:
    """Prints a record, or a list of them, as JSON."""
    echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def print_records(records: Sequence[Mapping[str, Any]]) -> None:
    """Prints one record or more, all with the same keys, as the table that ``nightjar sql`` would print."""
    types = (_TYPES.get(type(value), "VARCHAR") for value in records[0].values())
    rows = [tuple(record.values()) for record in records]
    print_table(QueryResult((*records[0],), (*types,), rows), sys.stdout, is_full=False)


def print_labelled(lines: Mapping[str, str]) -> None:
    """Prints lines that begin with what they are about."""
    for label, text in lines.items():
        echo(f"{label + ':':<12}{text}")


def print_some(lines: Sequence[str]) -> None:
    """Prints the first lines of a list, and how many there are besides."""
    for line in lines[:_FEW]:
        echo(f"  {line}")
    if len(lines) > _FEW:
        echo(f"  … and {len(lines) - _FEW:,} more: --json shows all")


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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def _lines(title: str) -> Progress:
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            echo(f"{title}: {done:,} of {total:,}", err=True)

    return show


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
