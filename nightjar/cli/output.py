"""What commands print: JSON, labelled lines, tables (``reports/tables.py``), and the progress of long work."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from nightjar.cli.terminal import echo
from nightjar.core.text import harmless, with_error
from nightjar.reports.tables import columns, labelled

__all__ = [
    "Progress",
    "avg_reward",
    "columns",
    "labelled",
    "print_json",
    "print_labelled",
    "print_some",
    "print_values",
    "progress_of",
    "shown",
]

Progress: TypeAlias = Callable[[int, int], None]

_LINE_SECONDS = 10.0
_FEW = 20


def print_json(value: Any) -> None:
    echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_labelled(lines: Mapping[str, Any]) -> None:
    """Prints values, also of several lines, beside their labels. Empty values are left out."""
    width = max(map(len, lines)) + 2
    for label, value in lines.items():
        if value not in (None, False, ""):
            text = str(value).replace("\n", f"\n{' ' * width}")
            echo(f"{label + ':':<{width}}{text}")


def print_values(values: Mapping[str, Any]) -> None:
    """Prints a text unchanged, and any other value as JSON."""
    width = max(map(len, values), default=0) + 2
    for name, value in values.items():
        echo(f"{name:<{width}}{shown(value)}")


def shown(value: Any) -> str:
    return harmless(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def print_some(lines: Sequence[str]) -> None:
    for line in lines[:_FEW]:
        echo(f"  {line}")
    if len(lines) > _FEW:
        echo(f"  … and {len(lines) - _FEW:,} more: --json shows all")


def avg_reward(mean: float | None, stderr: float | None) -> str:
    return "– (nothing scored)" if mean is None else with_error(mean, stderr)


@contextmanager
def progress_of(title: str) -> Iterator[Progress]:
    """Shows progress on stderr: a bar on a terminal, a line every ten seconds elsewhere."""
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*parts, console=Console(stderr=True), transient=True) as bars:
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
