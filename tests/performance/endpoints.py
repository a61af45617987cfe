"""Prints how long a run takes with endpoints that refuse, limit, queue, die and recover: ``make bench-endpoints``.

Each endpoint is a server in a process of its own. Two programs ask it, in turn: ``nightjar eval run``, whose time is
that of its metadata, without the start of the process, and the loop below, what a user would write with ``openai`` and
``tenacity``. "Allowed" is the shortest time in which the endpoint could answer all questions.
Medians of three, each with other random refusals.

    make bench-endpoints ARGS="--only 'every 20th' --repeats 1"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

_LATENCY = (0.05, 0.1)
_REFUSALS = (429, 500, 503)
_PATIENCE_SECONDS = 120
_ROLLOUTS = 4


@dataclass(frozen=True)
class Server:
    """How an endpoint behaves; a rate, a number at once or a quota of 0 means no limit.

    ``share`` of the requests get one of ``statuses``. ``halved_seconds``: the rate is halved between these moments
    after the first request. ``tokens_per_minute`` are announced in OpenAI's headers.
    """

    latency: tuple[float, float] = _LATENCY
    share: float = 0.0
    statuses: tuple[int, ...] = _REFUSALS
    retry_after: int | None = None
    per_second: float = 0.0
    halved_seconds: tuple[float, float] = (0.0, 0.0)
    at_once: int = 0
    queue: int = 0
    tokens_per_minute: int = 0
    is_dead: bool = False


@dataclass(frozen=True)
class Case:
    """A row: ``allowed`` is the time in seconds that the endpoint needs at least, ``goal`` the largest ratio to it."""

    name: str
    concurrency: int
    requests: int
    servers: tuple[Server, ...]
    allowed: float
    goal: float
    most_refused: float = 1.0


def _cases() -> Iterator[Case]:
    mean = sum(_LATENCY) / 2
    noisy = Server(share=0.05)
    yield Case("5 % refused, any rate", 8, 600, (noisy,), 600 * mean / 8, 1.3)
    yield Case("5 % refused, any rate", 64, 3000, (noisy,), 3000 * mean / 64, 1.3)
    yield Case("20 % refused, any rate", 32, 1500, (Server(share=0.2),), 1500 * mean / 32, 1.3)
    fast = Server(latency=(0.02, 0.02), share=0.01, statuses=(429,))
    yield Case("1 % of 429, 20 ms", 32, 2000, (fast,), 2000 * 0.02 / 32, 1.2)
    hinting = Server(share=0.2, statuses=(429,), retry_after=1)
    # 400 questions wait a second for each of 0.25 refusals; the longest chain of refusals among 400 is about four
    yield Case("20 % of 429, Retry-After: 1", 16, 400, (hinting,), 4 + 400 * mean / 16, 1.3)
    for hint in (None, 1):
        limited = Server(per_second=50, retry_after=hint)
        yield Case(f"50 a second, {'a' if hint else 'no'} Retry-After", 64, 1000, (limited,), 950 / 50, 1.1)
        crowded = Server(at_once=16, retry_after=hint)
        yield Case(f"16 at once, {'a' if hint else 'no'} Retry-After", 64, 2000, (crowded,), 2000 * mean / 16, 1.3)
    yield Case("a queue: 16 run, more wait", 64, 2000, (Server(queue=16),), 2000 * mean / 16, 1.1)
    good, half, dead = Server(queue=16), Server(share=0.5, statuses=(500,)), Server(is_dead=True)
    yield Case("replicas: good, half broken, dead", 16, 600, (good, half, dead), 600 * mean / 16, 1.3)
    yield Case("replicas: the first is dead", 16, 600, (dead, good, good), 600 * mean / 16, 1.3)
    halved = Server(per_second=50, halved_seconds=(10, 70))
    yield Case("50 a second, halved for a minute", 64, 3000, (halved,), 10 + 60 + (3000 - 550 - 1500) / 50, 1.2)
    quota = Server(tokens_per_minute=60_000)
    yield Case("60,000 tokens a minute", 64, 600, (quota,), 60 * (600 * 400 - 60_000) / 60_000, 1 / 0.9, 0.02)


class Bucket:
    """Fills evenly up to a second's, or for tokens a minute's, amount."""

    def __init__(self, per_second: float, most: float) -> None:
        self.per_second, self.most, self.level, self.at = per_second, most, most, time.monotonic()

    def take(self, amount: float, factor: float = 1.0) -> bool:
        now = time.monotonic()
        self.level = min(self.most * factor, self.level + (now - self.at) * self.per_second * factor)
        self.at = now
        if self.level < amount:
            return False
        self.level -= amount
        return True


@dataclass
class Endpoint:
    """A server's state; ``counts`` are shared with the process that started it: received, answered, refused."""

    kind: Server
    counts: Any
    began_at: float = 0.0
    in_flight: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        kind = self.kind
        self.random = random.Random(self.seed)
        self.rate = Bucket(kind.per_second, max(1.0, kind.per_second))
        self.tokens = Bucket(kind.tokens_per_minute / 60, kind.tokens_per_minute)
        self.served = asyncio.Semaphore(kind.queue or 10**6)

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.began_at = self.began_at or time.monotonic()
        self.counts[0] += 1
        cost = self.random.randint(200, 600)
        status = self.refusal(cost)
        headers = self.announced()
        if status:
            self.counts[2] += 1
            hint = {"Retry-After": str(self.kind.retry_after)} if self.kind.retry_after else {}
            return web.json_response({"error": {"message": "no"}}, status=status, headers=headers | hint)
        self.in_flight += 1
        try:
            async with self.served:
                await asyncio.sleep(self.random.uniform(*self.kind.latency))
        finally:
            self.in_flight -= 1
        self.counts[1] += 1
        return web.Response(body=_answer(cost), content_type="application/json", headers=headers)

    def refusal(self, cost: int) -> int | None:
        kind = self.kind
        first, last = kind.halved_seconds
        is_halved = first < time.monotonic() - self.began_at < last
        if kind.per_second and not self.rate.take(1, 0.5 if is_halved else 1):
            return 429
        if (kind.at_once and self.in_flight >= kind.at_once) or (kind.tokens_per_minute and not self.tokens.take(cost)):
            return 429
        return self.random.choice(kind.statuses) if self.random.random() < kind.share else None

    def announced(self) -> dict[str, str]:
        if not self.kind.tokens_per_minute:
            return {}
        limit, left = self.kind.tokens_per_minute, max(0.0, self.tokens.level)
        return {"x-ratelimit-limit-tokens": str(limit), "x-ratelimit-remaining-tokens": f"{left:.0f}"}


def _answer(tokens: int) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}
    usage = {"prompt_tokens": tokens - 2, "completion_tokens": 2, "total_tokens": tokens}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return orjson.dumps({**head, "choices": [choice], "usage": usage})


def _serve(kind: Server, seed: int, listening: socket.socket, counts: Any) -> None:
    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", Endpoint(kind, counts, seed=seed).answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.SockSite(runner, listening, backlog=4096).start()
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def _serving(kind: Server, seed: int) -> Iterator[tuple[str, Any]]:
    counts = multiprocessing.Array("q", 3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        if kind.is_dead:
            listening.close()
            yield url, counts
            return
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(kind, seed, listening, counts))
        process.start()
        try:
            yield url, counts
        finally:
            process.terminate()
            process.join()


def _nightjar(case: Case, urls: list[str], folder: Path) -> tuple[float, int]:
    """Returns the seconds of a run, and how many rollouts it scored."""
    rows = "".join(f'[[endpoint]]\nendpoint_id = "e"\nmodel = "m"\nurl = "{url}"\nkey = "KEY"\n' for url in urls)
    (folder / "endpoints.toml").write_text(rows)
    words = ["eval", "run", "arithmetic", "--direct", "--json", "-m", "e", "-e", "endpoints.toml"]
    words += ["-n", str(case.requests // _ROLLOUTS), "-r", str(_ROLLOUTS), "-c", str(case.concurrency)]
    command = [sys.executable, "-P", "-m", "nightjar", *words]
    environment = {**os.environ, "KEY": "any"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    try:
        metadata = json.loads(ended.stdout)
    except ValueError:
        sys.exit(ended.stderr[-2000:])
    return metadata["time_ms"] / 1000, metadata["scored"]


LOOP = """
import asyncio, sys, time
import openai
from tenacity import retry, stop_after_attempt, wait_random_exponential

async def main(urls, count, concurrency):
    clients = [openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) for url in urls]
    places, answers = asyncio.Semaphore(concurrency), []

    @retry(wait=wait_random_exponential(min=0.5, max=60), stop=stop_after_attempt(10))
    async def ask(client, question):
        return await client.chat.completions.create(model="m", messages=[{"role": "user", "content": question}])

    async def one(number):
        async with places:
            answers.append(await ask(clients[number % len(clients)], f"What is {number} + 4?"))

    await asyncio.gather(*(one(number) for number in range(count)), return_exceptions=True)
    return len(answers)

started = time.monotonic()
answered = asyncio.run(main(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2])))
print(time.monotonic() - started, answered)
"""


def _loop(case: Case, urls: list[str], _: Path) -> tuple[float, int]:
    """Returns the seconds of the loop, and how many questions were answered; it is given up after two minutes."""
    command = [sys.executable, "-c", LOOP, str(case.requests), str(case.concurrency), *urls]
    limit = _PATIENCE_SECONDS + 3 * case.allowed
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return limit, 0
    seconds, answered = ended.stdout.split()
    return float(seconds), int(answered)


@dataclass
class Measured:
    seconds: list[float] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


def _measure(
    case: Case, program: Callable[[Case, list[str], Path], tuple[float, int]], seed: int, into: Measured
) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = [stack.enter_context(_serving(kind, seed)) for kind in case.servers]
        seconds, answered = program(case, [url for url, _ in served], folder)
        received = sum(counts[0] for _, counts in served)
        refused = sum(counts[2] for _, counts in served)
    into.seconds.append(seconds)
    into.answered.append(answered)
    into.received.append(received)
    into.refused.append(refused / max(1, received))


def _row(case: Case, ours: Measured, theirs: Measured) -> tuple[str, bool]:
    ratios = sorted(seconds / case.allowed for seconds in ours.seconds)
    ratio, loop = statistics.median(ratios), statistics.median(theirs.seconds) / case.allowed
    lost = case.requests - min(ours.answered)
    is_met = ratio <= case.goal and not lost and statistics.median(ours.refused) <= case.most_refused
    cells = [
        f"{case.name:36}{case.concurrency:4}{case.requests:6}{case.allowed:8.1f} s",
        f"{ratio:8.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})  goal {case.goal:.2f}",
        f"{lost:6} lost{statistics.median(ours.received):7.0f} sent{statistics.median(ours.refused):7.1%} refused",
        f"| loop{loop:7.2f}{case.requests - min(theirs.answered):6} lost",
        "" if is_met else "  MISSED",
    ]
    return "".join(cells), is_met


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{'endpoint':36}{'-c':>4}{'n':>6}{'allowed':>10}{'ratio (range)':>19}")
    are_met = []
    for case in _cases():
        if options.only not in case.name:
            continue
        ours, theirs = Measured(), Measured()
        for seed in range(options.repeats):
            _measure(case, _nightjar, seed, ours)
            _measure(case, _loop, seed, theirs)
        line, is_met = _row(case, ours, theirs)
        are_met.append(is_met)
        print(line, flush=True)
    sys.exit(not all(are_met))


if __name__ == "__main__":
    main()
