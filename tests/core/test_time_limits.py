"""time_limit: as asyncio.timeout, with one timer for many blocks."""

import asyncio
import gc
import time
import weakref

import pytest

from nightjar.core.calling import time_limits
from nightjar.core.calling.time_limits import time_limit


async def sleeping(limit, seconds):
    """Returns whether the limit ended the sleep."""
    try:
        with time_limit(limit):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return True
    return False


async def test_each_block_ends_at_its_own_limit_and_is_not_cancelled_later():
    async def begun_later(number):
        await asyncio.sleep(0.02 * number)
        began = time.monotonic()
        return await sleeping(0.05, 600), time.monotonic() - began

    ends = await asyncio.gather(*(begun_later(number) for number in range(4)), sleeping(60, 0), sleeping(None, 0.01))
    assert ends[4:] == [False, False]
    assert all(is_over and seconds >= 0.05 for is_over, seconds in ends[:4])
    assert not await sleeping(1, 0)
    await asyncio.sleep(1.1)
    assert await sleeping(0.02, 60)
    assert asyncio.current_task().cancelling() == 0


async def test_the_shorter_of_two_limits_holds():
    with pytest.raises(TimeoutError), time_limit(30) as outer, time_limit(0.01) as inner:
        await asyncio.sleep(60)
    assert (outer.has_expired, inner.has_expired) == (False, True)
    with pytest.raises(TimeoutError), time_limit(0.01) as outer, time_limit(30) as inner:
        await asyncio.sleep(60)
    assert (outer.has_expired, inner.has_expired) == (True, False)


async def test_a_cancellation_from_outside_or_at_the_same_time_as_the_limit_is_no_timeout():
    async def slow():
        with time_limit(0.01):
            try:
                await asyncio.sleep(60)
            finally:
                task.cancel()

    task = asyncio.create_task(sleeping(30, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    task = asyncio.create_task(slow())
    with pytest.raises(asyncio.CancelledError):
        await task


def test_many_blocks_take_one_timer_of_their_event_loop_which_is_not_kept_alive():
    timers = []

    async def many():
        loop = asyncio.get_running_loop()
        call_at, before = loop.call_at, len(timers)
        loop.call_at = lambda when, *rest, **named: timers.append(when) or call_at(when, *rest, **named)
        await asyncio.gather(*(sleeping(30, 0) for _ in range(100)))
        return len(timers) - before

    assert [asyncio.run(many()) for _ in range(2)] == [1, 1]
    loop = asyncio.new_event_loop()
    loop.run_until_complete(sleeping(30, 0))
    loop.close()
    kept = weakref.ref(loop)
    del loop
    gc.collect()
    assert kept() is None


async def test_lengths_that_are_no_longer_used_take_no_memory():
    for milliseconds in range(1, 4):
        with time_limit(milliseconds / 1000):
            pass
    async with asyncio.timeout(60):
        while time_limits._limits[asyncio.get_running_loop()]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
