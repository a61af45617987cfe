"""Tasks that start before Prefect's server answers: each starts once, whenever the server answers."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from uuid import uuid4

import pytest


@pytest.fixture
def away(monkeypatch):
    from nightjar.tasks import away

    monkeypatch.setattr(away, "_START_SECONDS", 0.02)
    return away


@pytest.fixture
def engine(away, monkeypatch):
    """Replaces Prefect's engine: it asks for the function of a task after ``after()``, and again if it fails."""

    def engine(after, tries=1):
        async def run(asked, *, parameters, **_):
            await after()
            for left in reversed(range(tries)):
                try:
                    result = await asked.fn(**parameters)
                    break
                except ValueError:
                    if not left:
                        raise
            ended = asyncio.get_running_loop().create_future()
            ended.set_result(result)
            return SimpleNamespace(is_cancelled=lambda: False, aresult=lambda: ended)

        monkeypatch.setattr(away, "run_task_async", run)

    return engine


@pytest.fixture
def run(away):
    """Runs a task that fails for each None in the results; returns its result, and adds each call to a list."""
    from prefect import task

    async def run(results, calls):
        @task
        async def work(number):
            calls.append(number)
            await asyncio.sleep(0.01)
            result = results[len(calls) - 1]
            if result is None:
                raise ValueError("not yet")
            return result

        return await away.run_task(work, 7, task_run_id=uuid4())

    return run


async def test_a_task_starts_once_if_the_engine_asks_at_the_moment_of_the_early_start(away, engine, run):
    async def after():
        asyncio.get_running_loop().call_soon(time.sleep, 0.05)  # so that both times are over when the loop goes on
        await asyncio.sleep(0.015)

    engine(after)
    assert await run(["done", "again"], calls := []) == "done"
    await away.settle()
    assert calls == [7]


@pytest.mark.parametrize("seconds", [0, 0.025, 0.1])
async def test_the_engine_retries_a_task_that_started_early_and_failed(engine, run, seconds):
    engine(lambda: asyncio.sleep(seconds), tries=2)
    assert await run([None, "done"], calls := []) == "done"
    assert calls == [7, 7]


async def test_a_task_that_fails_without_an_engine_raises_its_error(away, engine, run, monkeypatch):
    monkeypatch.setattr(away, "_CALL_SECONDS", 0.05)
    engine(lambda: asyncio.sleep(60))
    with pytest.raises(ValueError, match="not yet"):
        await run([None], calls := [])
    assert calls == [7]
