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


@pytest.mark.parametrize(
    ("func", "kind", "message"), [({}.__getitem__, KeyError, "k"), (lambda _: next(iter([])), RuntimeError, "StopIt")]
)
async def test_an_error_of_the_function_is_raised(func, kind, message):
    with pytest.raises(kind, match=message):
        await WorkerThreads().run(lambda: func("k"))


async def all_at_once(pool, count):
    """Runs functions that end only when all of them are running."""
    together = threading.Barrier(count)
    async with asyncio.timeout(60):
        await asyncio.gather(*(pool.run(together.wait) for _ in range(count)))


def test_several_event_loops_use_a_pool_at_once():
    pool = WorkerThreads()
    with ThreadPoolExecutor(3) as users:
        for using in [users.submit(asyncio.run, all_at_once(pool, 2)) for _ in range(3)]:
            using.result(60)


async def test_a_hanging_call_is_abandoned_and_later_calls_run():
    pool, released = WorkerThreads(), threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.run(released.wait), 0.01)
    assert await asyncio.wait_for(pool.run(lambda: "next"), 60) == "next"
    released.set()


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


async def test_a_call_that_is_cancelled_while_it_waits_never_runs():
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
