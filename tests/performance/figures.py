"""What the benchmarks share: the table that they print, servers in processes of their own, times and shares."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

NIGHTJAR = [sys.executable, "-m", "nightjar"]


@dataclass(frozen=True)
class Row:
    case: str
    raw: str
    nightjar: str
    ratio: str
    reach: str


def print_table(raw: str, rows: Iterable[Row]) -> None:
    """Prints the table, even if a row fails; ``raw`` names what Nightjar is compared with."""
    table = Table("case", raw, "Nightjar", "ratio", "reach")
    try:
        for row in rows:
            table.add_row(*astuple(row))
    finally:
        Console(width=150).print(table)


@contextmanager
def serving(command: list[str], **options: Any) -> Iterator[tuple[int, str]]:
    """Runs a server in its own process; yields its process id and the first line that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline()
        finally:
            process.terminate()


@contextmanager
def view(warehouse: Path, **options: Any) -> Iterator[tuple[int, str]]:
    """Runs ``nightjar view``; yields its process id and its address."""
    with serving([*NIGHTJAR, "view", "--warehouse", str(warehouse), "--no-browser"], **options) as (pid, line):
        [address] = re.findall(r"http://\S+?(?=/?\s)", line)
        yield pid, address


def seconds_of(run: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - began


def shares(function: Callable[[int], object], count: int) -> NDArray[np.float64]:
    """Returns how often each of a function's answers is true, over ``count`` seeds, on all cores."""
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(function, range(count), chunksize=max(1, count // 80)))
    return np.array(found).mean(axis=0)
