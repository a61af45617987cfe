"""What grows with a team: segments of the warehouse, publishers at once, runs in a night, task runs on a server.

python tests/performance/scale.py             # make scale; some twenty minutes, 1 GB
python tests/performance/scale.py night       # one case

docs/internals/scale.md shows the figures. A query is asked in a new process, so its time is that of a cold start.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median

import httpx
from benchmark import prefect_server
from figures import seconds_of
from rich.console import Console
from rich.table import Table
from warehouse_builds import alone, progress
from warehouse_data import SHORT, Nights

from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.writing.packing import pack_everything
from nightjar.warehouse.writing.publishing import publish_run

SMALL = replace(SHORT, rollouts=20)
NIGHTLY = replace(SHORT, rollouts=100)
SEGMENTS = (100, 1_000, 10_000)
PUBLISHERS, RUNS_OF_EACH = 50, 4
RUNS_OF_A_NIGHT = 1_000
TASK_RUNS = 2_000
QUERIES = {
    "all runs": "SELECT env_id, model, avg(avg_reward) FROM runs GROUP BY ALL",
    "all rollouts": "SELECT env_id, runs.model, avg(reward) FROM rollouts JOIN runs USING (run_id) GROUP BY ALL",
    "one run": "SELECT avg(reward) FROM rollouts WHERE run_id = (SELECT max(run_id) FROM runs)",
}


def segments(folder: Path) -> Iterator[tuple[str, str]]:
    """Many runs that are not packed: how long a publish and the queries take, and how long packing takes."""
    warehouse, done = folder / "warehouse", 0
    for count in SEGMENTS:
        numbers = [range(first, min(first + 50, count)) for first in range(done, count, 50)]
        with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
            parts = list(processes.map(_publish_unpacked, [folder] * len(numbers), numbers))
        done = count
        progress(f"published {count:,} runs")
        yield f"publish of the last of {count:,} segments", _times(parts[-1])
        yield f"queries with {count:,} segments", _asked(warehouse)
    seconds = seconds_of(lambda: pack_everything(Folder(warehouse)))
    yield f"packing {done:,} segments", f"{seconds:.0f} s, {_count(warehouse):,} segments remain"
    yield "queries after packing", _asked(warehouse)


def publishers(folder: Path) -> Iterator[tuple[str, str]]:
    """Processes that publish into one warehouse at the same time."""
    nights, warehouse = Nights(NIGHTLY), folder / "warehouse"
    runs = [nights.write_run(folder / "runs", number).path for number in range(PUBLISHERS * RUNS_OF_EACH)]
    shares = [runs[number::PUBLISHERS] for number in range(PUBLISHERS)]
    with ProcessPoolExecutor(PUBLISHERS, multiprocessing.get_context("spawn")) as processes:
        list(processes.map(abs, range(PUBLISHERS)))  # starts the processes
        started = time.monotonic()
        took = [each for share in processes.map(_publish_all, [warehouse] * PUBLISHERS, shares) for each in share]
        seconds = time.monotonic() - started
    [(found, rollouts)] = Warehouse(warehouse).query("SELECT count(DISTINCT run_id), count(*) FROM rollouts").rows
    case = f"{PUBLISHERS} publishers at once, {RUNS_OF_EACH} runs of {NIGHTLY.rollouts} rollouts each"
    yield case, f"{seconds:.0f} s; {_times(took)}; {found} of {len(runs)} runs, {rollouts:,} rollouts found"


def night(folder: Path) -> Iterator[tuple[str, str]]:
    """A night of many small runs, published one after another by one process, with packing."""
    nights, warehouse = Nights(NIGHTLY), Warehouse(folder / "warehouse")
    runs = [nights.write_run(folder / "runs", number).path for number in range(RUNS_OF_A_NIGHT)]
    took = [seconds_of(warehouse.publish, run) for run in runs]
    case = f"{RUNS_OF_A_NIGHT:,} runs of {NIGHTLY.rollouts} rollouts"
    yield case, f"{sum(took):.0f} s; {_times(took)}; {_count(folder / 'warehouse')} segments remain"
    yield "queries after them", _asked(folder / "warehouse")


def server(_folder: Path) -> Iterator[tuple[str, str]]:
    """Records of task runs that a local Prefect server on SQLite accepts."""
    with prefect_server():
        seconds = asyncio.run(_create_task_runs(os.environ["PREFECT_API_URL"]))
    yield "task runs that a Prefect server on SQLite records", f"{TASK_RUNS / seconds:.0f} per second"


async def _create_task_runs(api: str) -> float:
    async with httpx.AsyncClient(base_url=api, timeout=60) as client:
        flow = (await client.post("/flows/", json={"name": "scale"})).json()["id"]
        run = (await client.post("/flow_runs/", json={"flow_id": flow})).json()["id"]
        numbers = iter(range(TASK_RUNS))

        async def create() -> None:
            for number in numbers:
                state = {"type": "COMPLETED", "name": "Completed"}
                task_run = {"flow_run_id": run, "task_key": "score", "dynamic_key": str(number), "state": state}
                (await client.post("/task_runs/", json=task_run)).raise_for_status()

        started = time.monotonic()
        await asyncio.gather(*(create() for _ in range(8)))
        return time.monotonic() - started


def _publish_unpacked(folder: Path, numbers: Sequence[int]) -> list[float]:
    nights, store = Nights(SMALL), Folder(folder / "warehouse")
    runs = (nights.write_run(folder / "runs", number).path for number in numbers)
    return [seconds_of(publish_run, store, run) for run in runs]


def _publish_all(warehouse: Path, runs: Sequence[Path]) -> list[float]:
    return [seconds_of(lambda run: Warehouse(warehouse).publish(run), run) for run in runs]


def _times(seconds: Sequence[float]) -> str:
    return f"a publish takes {1000 * median(seconds):,.0f} ms (at most {1000 * max(seconds):,.0f} ms)"


def _count(warehouse: Path) -> int:
    return len(Folder(warehouse).catalog().needed)


def _asked(warehouse: Path) -> str:
    times = (f"{name} {1000 * alone(_ask, warehouse, sql):,.0f} ms" for name, sql in QUERIES.items())
    return ", ".join(times)


def _ask(warehouse: Path, sql: str) -> float:
    return seconds_of(lambda: Warehouse(warehouse).query(sql, timeout_seconds=600))


CASES: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "segments": segments, "publishers": publishers, "night": night, "server": server,
}  # fmt: skip


def main() -> None:
    table = Table("case", "figures")
    try:
        for name in sys.argv[1:] or list(CASES):
            with tempfile.TemporaryDirectory() as folder:
                for row in CASES[name](Path(folder)):
                    table.add_row(*row)
    finally:
        Console(width=150).print(table)


if __name__ == "__main__":
    main()
