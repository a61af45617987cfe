"""Warehouses for the benchmark, made by publishing one run after the other, and the same data in plain DuckDB."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import ParamSpec, TypeVar

from warehouse_data import Nights, Shape

from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.relations import views_script
from nightjar.warehouse.storage.records import LINE_FILES
from nightjar.warehouse.storage.segments import KINDS

_ROLLOUTS_AT_ONCE = 5_000
"""What a process publishes before it reports."""
_TABLES = (*KINDS, "prices", *(file.table for file in LINE_FILES))

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Built:
    """A warehouse of made-up runs.

    Attributes:
        folder: holds the warehouse, and beside it the plain DuckDB file when that was asked for.
        runs, rollouts: how many were published.
        seconds: how long that took, without writing the run directories.
        results_bytes, attempts_bytes: of all run directories.
    """

    folder: Path
    runs: int
    rollouts: int
    seconds: float
    results_bytes: int
    attempts_bytes: int

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"


def alone(function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        return processes.submit(function, *args, **kwargs).result()


def build(folder: Path, shape: Shape, rollouts: int, writers: int) -> Built:
    """Publishes so many rollouts into a warehouse in a folder; one that is there already is used again."""
    note = folder / "built.json"
    runs = max(1, rollouts // shape.rollouts)
    if not note.exists():
        shutil.rmtree(folder, ignore_errors=True)
        shares = list(_published(folder, shape, runs, writers))
        note.write_text(json.dumps([asdict(share) | {"folder": ""} for share in shares]))
    shares = [Built(**share) for share in json.loads(note.read_text())]
    totals = {name: sum(getattr(share, name) for share in shares) for name in Built.__annotations__ if name != "folder"}
    return Built(folder, **totals)


def _published(folder: Path, shape: Shape, runs: int, writers: int) -> Iterator[Built]:
    """Publishes runs from several processes, and yields what each share of them took."""
    step = max(1, _ROLLOUTS_AT_ONCE // shape.rollouts)
    shares = [range(first, min(first + step, runs)) for first in range(0, runs, step)]
    started, done, told = time.monotonic(), 0, 0
    with ProcessPoolExecutor(writers, multiprocessing.get_context("spawn")) as processes:
        waiting = [processes.submit(_publish_share, folder, shape, numbers, writers) for numbers in shares]
        for share in as_completed(waiting):
            yield share.result()
            done += share.result().rollouts
            if done >= told + runs * shape.rollouts / 20:
                told, speed = done, done / (time.monotonic() - started)
                progress(f"published {done:,} of {runs * shape.rollouts:,} rollouts, {speed:,.0f}/s with their writing")


def _publish_share(folder: Path, shape: Shape, numbers: Sequence[int], writers: int) -> Built:
    """Writes, publishes and removes runs; of the seconds, each of the writers gets its part."""
    warehouse = Warehouse(folder / "warehouse")
    seconds, rollouts, results_bytes, attempts_bytes = 0.0, 0, 0, 0
    for number in numbers:
        run = _nights(shape).write_run(folder / "runs", number)
        started = time.perf_counter()
        warehouse.publish(run.path)
        seconds += time.perf_counter() - started
        shutil.rmtree(run.path)
        rollouts += run.rollouts
        results_bytes += run.results_bytes
        attempts_bytes += run.attempts_bytes
    return Built(folder, len(numbers), rollouts, seconds / writers, results_bytes, attempts_bytes)


@cache
def _nights(shape: Shape) -> Nights:
    return Nights(shape)


def plain_database(built: Built, *, has_texts: bool = True) -> Path:
    """Returns a DuckDB file with plain tables of the same content and the same views; made where there is none.

    ``has_texts=False`` leaves what models wrote NULL.
    """
    path = built.folder / "plain.duckdb"
    if not path.exists():
        progress("copying into plain DuckDB")
        alone(_copy, built.warehouse, path, has_texts=has_texts)
    return path


def _copy(warehouse: Path, path: Path, *, has_texts: bool) -> None:
    unfinished = path.with_suffix(".writing")
    unfinished.unlink(missing_ok=True)
    with Warehouse(warehouse).connect() as connection:
        connection.execute(f"ATTACH '{unfinished}' AS plain; CREATE SCHEMA plain.segments")
        for table in _TABLES:
            no_texts = "REPLACE (NULL::JSON AS completion, NULL::JSON AS trajectory)"
            columns = f"* {no_texts}" if table == "rollouts" and not has_texts else "*"
            connection.execute(f"CREATE TABLE plain.segments.{table} AS SELECT {columns} FROM segments.{table}")
        connection.execute("USE plain")
        connection.execute(views_script())
        connection.execute("USE memory; DETACH plain")
    unfinished.rename(path)


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
