"""Places, the task group and the counters of the engine."""

import asyncio

import pytest

from nightjar.core.calling.limits import Places
from nightjar.engine import Progress, task_group
from nightjar.engine.limits import fair_shares


async def taken(limit, count):
    """Asks for places, and returns the tasks once all that can have a place have one."""
    tasks = [asyncio.create_task(limit.acquire()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_callers_are_served_in_their_order_up_to_the_ceiling_if_there_is_one():
    limit = Places(2)
    tasks = await taken(limit, 5)
    for served in range(2, 6):
        assert [task.done() for task in tasks] == [True] * served + [False] * (5 - served)
        limit.release()
        await asyncio.sleep(0)
    assert limit.in_use == 1
    for ceiling in (0, -1):
        assert all(task.done() for task in await taken(Places(ceiling), 1000))


async def test_a_cancelled_caller_keeps_no_place():
    for has_place in (False, True):  # while it waits, and when it has just got a place
        limit = Places(1)
        _, second, third = await taken(limit, 3)
        if has_place:
            limit.release()
        second.cancel()
        await asyncio.sleep(0)
        if not has_place:
            limit.release()
        await asyncio.wait_for(third, 60)
        assert limit.in_use == 1


async def test_a_returned_place_is_given_back_before_new_callers_get_one():
    limit = Places(1)
    waited, order = asyncio.Event(), []

    async def first():
        async with limit:
            async with limit.given_back():
                await waited.wait()
            order.append("first again")

    async def other(name):
        async with limit:
            order.append(name)
            waited.set()
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(first(), other("second"), other("third")), 60)
    assert order == ["second", "first again", "third"]
    assert limit.in_use == 0


async def test_a_lower_ceiling_ends_no_call_and_a_higher_one_wakes_callers():
    limit = Places(3)
    tasks = await taken(limit, 5)
    limit.set_ceiling(0)
    for _ in range(3):
        limit.release()
    await asyncio.sleep(0)
    assert (limit.in_use, limit.is_waited_for) == (0, True)
    limit.set_ceiling(1)
    await asyncio.wait_for(tasks[3], 60)
    await asyncio.sleep(0)
    assert (limit.in_use, tasks[4].done()) == (1, False)
    tasks[4].cancel()
    await asyncio.sleep(0)
    assert not limit.is_waited_for


def test_limits_are_shared_fairly_and_progress_is_estimated():
    assert (fair_shares(8, [8]), fair_shares(8, [8, 8]), fair_shares(7, [5, 5])) == ([8], [4, 4], [4, 3])
    assert (fair_shares(8, [32, 2, 32]), fair_shares(8, [0, 3])) == ([3, 2, 3], [0, 3])
    assert fair_shares(2, [4, 4, 4]) == [1, 1, 0]
    progress = Progress(total=10, already_done=2, scored=3, failed=1, reward_sum=3.0, reward_count=4)
    progress.started_at -= 8.0  # 4 rollouts in 8 seconds; 4 are left
    assert (progress.done, progress.avg_reward) == (6, 0.75)
    assert progress.seconds_left == pytest.approx(8.0, rel=0.01)
    assert (Progress(total=10).avg_reward, Progress(total=10).seconds_left) == (None, None)


async def test_a_task_group_raises_the_plain_error_with_its_cause_and_cancels_the_other_tasks():
    async def fail():
        raise KeyError("k") from ValueError("v")

    async def both():
        async with task_group() as tasks:
            others.append(tasks.create_task(asyncio.sleep(10)))
            await asyncio.sleep(0)
            tasks.create_task(fail())

    others = []
    with pytest.raises(KeyError, match="k") as caught:
        await both()
    assert (others[0].cancelled(), type(caught.value.__cause__)) == (True, ValueError)
