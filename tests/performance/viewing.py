"""What the pages of ``nightjar view`` take with a million rollouts, for one person and for twenty.

Run it::

    make bench-view                             # builds the warehouse first: seven minutes, 2 GB
    make bench-view ARGS="--keep outputs/view"  # keeps it, and uses it again
    make bench-view ARGS="--runs 100"           # 50,000 rollouts

A real ``nightjar view`` is asked over HTTP. Of a page: the first time, then median and worst of nine more. Then
twenty people each click twenty times, half a second to a second and a half after the page was there, while eight
processes publish. Memory is the proportional share of the server and of the processes that answer its queries.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import httpx
import psutil
from figures import view
from rich.console import Console
from rich.table import Table
from warehouse_data import REALISTIC, Nights

from nightjar.warehouse import Warehouse

AGAIN, PEOPLE, CLICKS, PUBLISHERS, PUBLISHED_EACH = 9, 20, 20, 8, 10
TIDY_EVERY = 100
PAUSE_SECONDS = (0.5, 1.5)
TAGS = re.compile("<[^>]*>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a folder for what is built")
    parser.add_argument("--runs", type=int, default=2_000, help="of 500 rollouts each (default: 2,000)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)) / "warehouse"
        publish(folder, range(published(folder), asked.runs))
        with view(folder) as (pid, address):
            Console().print(asyncio.run(pages(address)))
            Console().print(asyncio.run(crowd(address, folder)))
            Console().print(f"Memory: {memory(psutil.Process(pid))}")


def published(folder: Path) -> int:
    return int(Warehouse(folder).query("SELECT count(*) FROM runs").rows[0][0]) if folder.exists() else 0


def publish(folder: Path, numbers: range) -> None:
    nights, warehouse = Nights(REALISTIC), Warehouse(folder)
    for number in numbers:
        with tempfile.TemporaryDirectory() as outputs:
            run = nights.write_run(Path(outputs), number)
            warehouse.publish(run.path, tidies=number % TIDY_EVERY == TIDY_EVERY - 1)


async def pages(address: str) -> Table:
    table = Table("page", "first", "median", "worst", title="One person")
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        for name, path in addresses(await runs_of(client)).items():
            first, *others = [await milliseconds(client, path) for _ in range(AGAIN + 1)]
            table.add_row(name, *(f"{found:,.0f} ms" for found in (first, statistics.median(others), max(others))))
    return table


async def runs_of(client: httpx.AsyncClient) -> list[str]:
    return sorted(set(re.findall(r'/runs/([0-9a-f]{12})"', (await client.get("/?env=algebra-00")).text)))


def addresses(runs: list[str]) -> Mapping[str, str]:
    run, other = runs[:2]
    return {
        "first page": "/",
        "first page, filtered, by reward": "/?env=algebra-00&sort=reward",
        "first page, a text": "/?q=logic",
        "run": f"/runs/{run}",
        "samples": f"/runs/{run}/samples",
        "samples, wrong, by spread": f"/runs/{run}/samples?show=wrong&sort=spread",
        "samples, a condition": f"/runs/{run}/samples?where=output_tokens%20%3E%20200",
        "samples, flipped": f"/runs/{run}/samples?against={other}",
        "samples, a text": f"/runs/{run}/samples?q=therefore",
        "rollout": f"/runs/{run}/3/0",
        "rollout beside another run": f"/runs/{run}/3/0?beside={other}",
        "compare": f"/compare?run={run}&run={other}",
        "history": "/history?env=algebra-00",
        "nights": "/nights",
        "notes": "/notes",
        "search of all, found nowhere": "/search?q=xyzzy",
    }


async def milliseconds(client: httpx.AsyncClient, path: str) -> float:
    began = time.perf_counter()
    (await client.get(path)).raise_for_status()
    return 1000 * (time.perf_counter() - began)


async def crowd(address: str, folder: Path) -> Table:
    """Has people click while runs are published; counts answers that are no page."""
    table = Table("pages", "median", "p95", "worst", "errors", "published", title=f"{PEOPLE} people")
    for publishers in (0, PUBLISHERS):
        with ProcessPoolExecutor(PUBLISHERS, get_context("spawn")) as pool:
            publishing = start_publishing(pool, folder, publishers)
            times, problems = await clicks(address)
            count = PUBLISHED_EACH * sum(one.result() is None for one in publishing)
        places = statistics.quantiles(times, n=20)
        figures = [f"{1000 * found:,.0f} ms" for found in (statistics.median(times), places[-1], max(times))]
        table.add_row(f"{len(times)}", *figures, f"{len(problems)}", f"{count} runs by {publishers}")
        for problem in problems:
            Console().print(problem)
    return table


def start_publishing(pool: ProcessPoolExecutor, folder: Path, count: int) -> list[Future[None]]:
    first = published(folder)
    starts = range(first, first + PUBLISHED_EACH * count, PUBLISHED_EACH)
    return [pool.submit(publish, folder, range(start, start + PUBLISHED_EACH)) for start in starts]


async def clicks(address: str) -> tuple[list[float], list[str]]:
    """Returns how long every page took, in seconds, and what was answered in the place of pages."""
    limits = httpx.Limits(max_connections=PEOPLE)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        runs = await runs_of(client)
        found = await asyncio.gather(*(person(client, runs, number) for number in range(PEOPLE)))
    times, problems = zip(*found, strict=True)
    return list(chain.from_iterable(times)), list(chain.from_iterable(problems))


async def person(client: httpx.AsyncClient, runs: list[str], number: int) -> tuple[list[float], list[str]]:
    """Looks at runs as people do: the first page, a run, its samples, a rollout, the next."""
    chance, times, problems = random.Random(number), [], []
    for click in range(CLICKS):
        await asyncio.sleep(chance.uniform(*PAUSE_SECONDS))
        run, example = chance.choice(runs), chance.randrange(90)
        path = ("/", f"/runs/{run}", f"/runs/{run}/samples", f"/runs/{run}/{example}/0")[click % 4]
        began = time.perf_counter()
        answer = await client.get(path)
        times.append(time.perf_counter() - began)
        if answer.status_code != httpx.codes.OK:
            problems.append(f"{path}: {answer.status_code} {' '.join(TAGS.sub(' ', answer.text).split())}")
    return times, problems


def memory(process: psutil.Process) -> str:
    answering = process.children(recursive=True)
    server, queries = megabytes(process), sum(map(megabytes, answering))
    return f"server {server:,.0f} MB, {len(answering)} query processes {queries:,.0f} MB"


def megabytes(process: psutil.Process) -> float:
    taken = process.memory_full_info()
    return float(getattr(taken, "pss", taken.rss)) / 1e6


if __name__ == "__main__":
    main()
