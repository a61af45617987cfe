"""Places, the task group and the counters of the engine."""

import asyncio

import pytest

from nightjar.core.calling.limits import Places
from nightjar.engine import Progress, task_group
from nightjar.engine.limits import fair_shares


class TestPlaces:
    async def taken(self, limit, count):
        """Asks for so many places, and returns the tasks once those that can have one do."""
        tasks = [asyncio.create_task(limit.acquire()) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks

    async def test_so_many_at_once_and_no_more(self):
        limit = Places(2)
        tasks = await self.taken(limit, 3)
        assert [task.done() for task in tasks] == [True, True, False]
        limit.release()
        await asyncio.wait_for(tasks[2], 1)
        assert limit.in_use == 2

    async def test_first_come_first_served(self):
        limit, order = Places(1), []

        async def take(name):
            await limit.acquire()
            order.append(name)

        await limit.acquire()
        tasks = [asyncio.create_task(take(name)) for name in "abc"]
        await asyncio.sleep(0)
        for _ in range(3):
            limit.release()
        await asyncio.gather(*tasks)
        assert order == ["a", "b", "c"]

    @pytest.mark.parametrize("ceiling", [0, -1])
    async def test_no_ceiling(self, ceiling):
        assert all(task.done() for task in await self.taken(Places(ceiling), 1000))

    async def test_who_stops_waiting_takes_no_place(self):
        limit = Places(1)
        first, second, third = await self.taken(limit, 3)
        second.cancel()
        await asyncio.sleep(0)
        limit.release()
        await asyncio.wait_for(third, 1)
        assert (first.done(), limit.in_use) == (True, 1)

    async def test_who_is_cancelled_with_a_place_gives_it_back(self):
        limit = Places(1)
        _, second, third = await self.taken(limit, 3)
        limit.release()  # the place goes to the second …
        second.cancel()  # … which is cancelled before it can run
        await asyncio.wait_for(third, 1)
        assert limit.in_use == 1

    async def test_who_gives_a_place_back_for_a_while_comes_before_those_who_have_not_begun(self):
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

        await asyncio.wait_for(asyncio.gather(first(), other("second"), other("third")), 1)
        assert order == ["second", "first again", "third"]
        assert limit.in_use == 0

    async def test_a_lower_ceiling_waits_for_who_is_under_way_and_a_higher_one_wakes(self):
        limit = Places(3)
        tasks = await self.taken(limit, 5)
        limit.set_ceiling(0)
        for _ in range(3):
            limit.release()
        await asyncio.sleep(0)
        assert (limit.in_use, limit.is_waited_for) == (0, True)
        limit.set_ceiling(1)
        await asyncio.wait_for(tasks[3], 1)
        await asyncio.sleep(0)
        assert (limit.in_use, tasks[4].done()) == (1, False)
        tasks[4].cancel()
        await asyncio.sleep(0)
        assert not limit.is_waited_for

    @pytest.mark.parametrize(
        ("limit", "wanted", "shares"),
        [
            (8, [8], [8]),
            (8, [8, 8], [4, 4]),
            (8, [32, 2, 32], [3, 2, 3]),
            (7, [5, 5], [4, 3]),
            (8, [0, 3], [0, 3]),
            (2, [4, 4, 4], [1, 1, 0]),
        ],
    )
    def test_fair_shares(self, limit, wanted, shares):
        assert fair_shares(limit, wanted) == shares


class TestTaskGroup:
    async def test_raises_the_plain_error_and_cancels_the_others(self):
        other = asyncio.Event()

        async def fail():
            raise KeyError("k")

        async def wait():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                other.set()
                raise

        async def both():
            async with task_group() as tasks:
                tasks.create_task(wait())
                await asyncio.sleep(0)
                tasks.create_task(fail())

        with pytest.raises(KeyError, match="k"):
            await both()
        assert other.is_set()

    async def test_an_error_keeps_its_cause(self):
        with pytest.raises(KeyError) as caught:
            async with task_group():
                raise KeyError("k") from ValueError("v")
        assert isinstance(caught.value.__cause__, ValueError)


class TestProgress:
    def test_done_counts_good_and_bad_and_what_was_there(self):
        assert Progress(total=10, already_done=2, scored=3, failed=1).done == 6

    def test_average_reward(self):
        assert (Progress().avg_reward, Progress(reward_sum=3.0, reward_count=4).avg_reward) == (None, 0.75)

    def test_how_long_the_rest_takes(self):
        progress = Progress(total=10, already_done=2, scored=3, failed=1)
        progress.started_at -= 8.0  # 4 rollouts in 8 seconds; 4 are left
        assert progress.seconds_left == pytest.approx(8.0, rel=0.01)

    def test_which_cannot_be_said_at_the_start(self):
        assert Progress(total=10).seconds_left is None
