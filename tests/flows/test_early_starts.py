"""Tasks that start before Prefect's server answers: each starts once, whenever the server answers."""

from __future__ import annotations

import asyncio
import time
from uuid import uuid4

import pytest
from prefect import task

from nightjar.tasks import away


class Engine:
    """Stands for Prefect's engine: asks for the function of a task after some seconds, and again if it fails."""

    def __init__(self, monkeypatch, *, after, tries=1):
        self.after, self.tries = after, tries
        monkeypatch.setattr(away, "run_task_async", self.run)

    async def run(self, asked, *, parameters, **_):
        await self.after()
        for _ in range(self.tries - 1):
            try:
                return Ended(await asked.fn(**parameters))
            except ValueError:
                continue
        return Ended(await asked.fn(**parameters))


class Ended:
    def __init__(self, result):
        self.result = result

    def is_cancelled(self):
        return False

    async def aresult(self):
        return self.result


def counted(results):
    """Returns a task that fails for each None in the results, and the list of its calls."""
    calls = []

    @task
    async def work(number):
        calls.append(number)
        await asyncio.sleep(0.01)
        result = results[len(calls) - 1]
        if result is None:
            raise ValueError("not yet")
        return result

    return work, calls


async def run(work):
    return await away.run_task(work, 7, task_run_id=uuid4())


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(away, "_START_SECONDS", 0.02)


async def test_a_task_starts_once_if_the_engine_asks_at_the_moment_of_the_early_start(monkeypatch):
    work, calls = counted(["done", "again"])

    async def after():
        asyncio.get_running_loop().call_soon(time.sleep, 0.05)  # so that both times are over when the loop goes on
        await asyncio.sleep(0.015)

    Engine(monkeypatch, after=after)
    assert await run(work) == "done"
    await away.settle()
    assert calls == [7]


@pytest.mark.parametrize("seconds", [0, 0.025, 0.1])
async def test_the_engine_retries_a_task_that_started_early_and_failed(monkeypatch, seconds):
    work, calls = counted([None, "done"])
    Engine(monkeypatch, after=lambda: asyncio.sleep(seconds), tries=2)
    assert await run(work) == "done"
    assert calls == [7, 7]


async def test_a_task_that_fails_without_an_engine_raises_its_error(monkeypatch):
    monkeypatch.setattr(away, "_CALL_SECONDS", 0.05)
    work, calls = counted([None])
    Engine(monkeypatch, after=lambda: asyncio.sleep(60))
    with pytest.raises(ValueError, match="not yet"):
        await run(work)
    assert calls == [7]
