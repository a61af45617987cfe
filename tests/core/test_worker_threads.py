"""WorkerThreads: blocking functions beside the event loop."""

import asyncio
import contextvars
import threading
import time

import pytest

from nightjar.core.calling.threads import WorkerThreads

colour = contextvars.ContextVar("colour")


async def test_returns_what_the_function_returns():
    assert await WorkerThreads().run(lambda: 42) == 42


async def test_raises_what_the_function_raises():
    def fail():
        raise KeyError("k")

    with pytest.raises(KeyError, match="k"):
        await WorkerThreads().run(fail)


async def test_stop_iteration_becomes_a_runtime_error():
    with pytest.raises(RuntimeError, match="StopIteration"):
        await WorkerThreads().run(lambda: next(iter([])))


async def test_runs_in_another_thread_with_the_caller_s_context():
    colour.set("green")
    found = await WorkerThreads().run(lambda: (colour.get(), threading.current_thread().daemon))
    assert found == ("green", True)


async def test_the_event_loop_goes_on_meanwhile():
    freed = threading.Event()
    running = asyncio.create_task(WorkerThreads().run(lambda: freed.wait(10)))
    await asyncio.sleep(0.001)
    freed.set()
    assert await running, "it was not freed while it ran"


async def test_short_calls_share_one_thread():
    pool = WorkerThreads()
    names = await asyncio.gather(*(pool.run(threading.get_ident) for _ in range(200)))
    assert len(set(names)) <= 3


async def all_at_once(pool, count):
    """Runs functions that end only when all of them are under way."""
    together = threading.Barrier(count)
    async with asyncio.timeout(5):
        await asyncio.gather(*(pool.run(together.wait) for _ in range(count)))


async def test_calls_that_have_to_wait_get_threads_of_their_own():
    await all_at_once(WorkerThreads(), 4)


def test_so_they_do_in_the_event_loops_that_follow():
    pool = WorkerThreads()

    async def one():
        return await pool.run(lambda: 1)

    asyncio.run(one())
    asyncio.run(all_at_once(pool, 3))


def test_several_event_loops_use_a_pool_at_once():
    pool, ended = WorkerThreads(), []

    def use():
        asyncio.run(all_at_once(pool, 2))
        ended.append(True)

    users = [threading.Thread(target=use) for _ in range(3)]
    for user in users:
        user.start()
    for user in users:
        user.join(5)
    assert ended == [True] * 3


async def test_a_call_that_hangs_is_given_up_and_the_next_ones_run():
    pool, released = WorkerThreads(), threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.run(released.wait), 0.01)
    assert await asyncio.wait_for(pool.run(lambda: "next"), 5) == "next"
    released.set()


async def test_calls_that_end_in_the_moment_in_which_they_are_given_up_use_up_no_threads():
    """More of them than the pool has threads: each ends after it is cancelled, and before the loop gets to that."""
    pool, loop = WorkerThreads(), asyncio.get_running_loop()
    for _ in range(70):
        has_begun, may_end = asyncio.Event(), threading.Event()

        def work(has_begun=has_begun, may_end=may_end):
            loop.call_soon_threadsafe(has_begun.set)
            may_end.wait()

        task = asyncio.create_task(pool.run(work))
        await asyncio.wait_for(has_begun.wait(), 5)
        task.cancel()
        may_end.set()
        time.sleep(0.002)  # noqa: ASYNC251 - the loop is busy meanwhile
        await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.wait_for(pool.run(lambda: "next"), 5) == "next"


async def test_a_call_that_is_cancelled_before_its_turn_is_never_made():
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
