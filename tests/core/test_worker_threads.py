"""WorkerThreads: functions that block, without blocking the event loop."""

import asyncio
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nightjar.core.calling.threads import WorkerThreads

colour = contextvars.ContextVar("colour")


async def test_a_function_runs_in_a_daemon_thread_with_the_context_of_the_caller_and_short_calls_share_one():
    colour.set("green")
    found = await WorkerThreads().run(lambda: (colour.get(), threading.current_thread().daemon))
    assert found == ("green", True)
    pool = WorkerThreads()
    names = await asyncio.gather(*(pool.run(threading.get_ident) for _ in range(200)))
    assert len(set(names)) <= 3


async def test_an_error_of_the_function_is_raised():
    with pytest.raises(KeyError, match="k"):
        await WorkerThreads().run(lambda: {}["k"])
    with pytest.raises(RuntimeError, match="StopIt"):
        await WorkerThreads().run(lambda: next(iter([])))


def test_several_event_loops_use_a_pool_at_once():
    async def both_at_once():
        """Runs functions that end only when both of them are running."""
        together = threading.Barrier(2)
        async with asyncio.timeout(60):
            await asyncio.gather(*(pool.run(together.wait) for _ in range(2)))

    pool = WorkerThreads()
    with ThreadPoolExecutor(3) as users:
        for using in [users.submit(asyncio.run, both_at_once()) for _ in range(3)]:
            using.result(60)


async def test_a_hanging_call_is_abandoned_and_one_that_is_cancelled_while_it_waits_never_runs():
    pool, released = WorkerThreads(), threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.run(released.wait), 0.01)
    assert await asyncio.wait_for(pool.run(lambda: "next"), 60) == "next"
    released.set()
    pool, released, made = WorkerThreads(), threading.Event(), []
    first = asyncio.create_task(pool.run(released.wait))
    await asyncio.sleep(0)
    second = asyncio.create_task(pool.run(lambda: made.append(True)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    released.set()
    await first
    assert made == []


async def test_calls_that_end_while_they_are_cancelled_use_up_no_threads():
    """There are more calls than threads: each ends after it is cancelled, before the event loop handles that."""
    pool, loop = WorkerThreads(), asyncio.get_running_loop()
    for _ in range(70):
        has_begun, may_end = asyncio.Event(), threading.Event()

        def work(has_begun=has_begun, may_end=may_end):
            loop.call_soon_threadsafe(has_begun.set)
            may_end.wait()

        task = asyncio.create_task(pool.run(work))
        await asyncio.wait_for(has_begun.wait(), 60)
        task.cancel()
        may_end.set()
        time.sleep(0.002)  # noqa: ASYNC251 - the loop is busy meanwhile
        await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.wait_for(pool.run(lambda: "next"), 60) == "next"
