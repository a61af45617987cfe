"""``Run``: a run in progress, with its stages. It is a plain class, so that Prefect passes it to tasks unchanged."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from nightjar.clients.pace import Pace
from nightjar.core.calling.limits import Places
from nightjar.core.calling.loops import HomeLoop
from nightjar.core.rollout.records import Key
from nightjar.core.text import counted
from nightjar.engine.engine import Engine
from nightjar.engine.limits import Budget
from nightjar.engine.plan import Group, GroupQueue, Plan, Shard, UnscoredGroups
from nightjar.engine.progress import Progress
from nightjar.engine.runs import OpenRun, RunDirectory, RunMetadata
from nightjar.engine.tasks import rare_garbage_collection, task_group
from nightjar.errors import RunCancelledError, RunTimedOutError, UnscoredError

logger = logging.getLogger(__name__)

# Stages get this long to end by themselves before the task that waits for them is cancelled.
_GRACE_SECONDS = 2.0

_open_runs: list[Run] = []


def open_runs() -> Sequence[Run]:
    return tuple(_open_runs)


class Run:
    """A run that is open in this process. A context manager, which closes the run at the end.

    ``time_limit_seconds`` is for all stages together. The functions in ``closing`` are awaited at the end, in reverse
    order.
    """

    def __init__(
        self,
        opened: OpenRun,
        engine: Engine,
        plan: Plan,
        example_ids: Sequence[int],
        *,
        max_shards: int = 1,
        is_interleaved: bool = True,
        time_limit_seconds: float | None = None,
        closing: Sequence[Callable[[], Awaitable[Any]]] = (),
        paces: Callable[[], Sequence[Pace]] = tuple,
    ) -> None:
        self.opened = opened
        self._engine = engine
        self._plan = plan
        self._time_limit_seconds = time_limit_seconds
        self._closing = closing
        self.paces = paces
        self.unpublished: Exception | None = None
        self.hub_url: str | None = None
        self.unpushed: Exception | None = None
        self._home = HomeLoop(f"nightjar-run-{opened.metadata.run_id}")
        self._stages: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._have_ended = False
        self._working: set[asyncio.Task[None]] = set()
        self._being_scored: set[int] = set()
        self._scored: set[int] = set()
        self.is_interleaved = is_interleaved
        self.shards = plan.shards(opened.journal, example_ids, max_shards)
        self._queues: dict[int, GroupQueue] = {shard.number: asyncio.Queue() for shard in self.shards}
        self._started = {shard.number: asyncio.Event() for shard in self.shards}
        self._generated = {shard.number: asyncio.Event() for shard in self.shards}
        self._unscored: dict[int, UnscoredGroups] = {shard.number: {} for shard in self.shards}
        self._tries: Counter[int] = Counter()
        self._taken_over: set[int] = set()
        self._count_what_is_done()
        _open_runs.append(self)

    @property
    def run_id(self) -> str:
        return self.metadata.run_id

    @property
    def directory(self) -> RunDirectory:
        assert self.opened.directory is not None, "the run is kept in memory"
        return self.opened.directory

    @property
    def metadata(self) -> RunMetadata:
        return self.opened.metadata

    @property
    def error(self) -> BaseException | None:
        return self.opened.error

    @property
    def progress(self) -> Progress:
        return self._engine.progress

    @property
    def budget(self) -> Budget | None:
        return self._engine.budget

    @property
    def generating(self) -> Places:
        return self._engine.generating

    @property
    def has_more_to_start(self) -> bool:
        return self.generating.is_waited_for or not all(started.is_set() for started in self._started.values())

    @asynccontextmanager
    async def stages(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Waits for the stages started in the block.

        An error in a stage stops all stages and becomes the run's error.
        """
        self._home.settle()
        self._stages = asyncio.current_task()
        self._start_timer()
        try:
            with rare_garbage_collection():
                async with task_group() as stages:
                    yield stages
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 - it becomes the error of the run
            if self.error is None:
                self.opened.error = error
            elif isinstance(error, asyncio.CancelledError) and self._stages is not None:
                self._stages.uncancel()
        finally:
            self._stages, self._have_ended = None, True
            if self._timer is not None:
                self._timer.cancel()

    def stop(self, error: BaseException) -> None:
        """Stops the stages, and cancels them after 2 s.

        Finished rollouts are kept. The first ``error`` is kept as the run's.
        """
        if self.error is None and not self._have_ended:
            self.opened.error = error
            self._home.call_soon(self._end_stages)

    def _end_stages(self) -> None:
        for event in (*self._started.values(), *self._generated.values()):
            event.set()
        for work in self._working:
            work.cancel()
        if (stages := self._stages) is not None:
            asyncio.get_running_loop().call_later(_GRACE_SECONDS, lambda: self._stages is stages and stages.cancel())

    async def in_turn(self) -> AsyncIterator[Shard]:
        for shard in self.shards:
            await self.turn(shard)
            if self.error is None:
                yield shard

    async def turn(self, shard: Shard) -> None:
        """Waits until all earlier shards have started their rollouts."""
        for earlier in self.shards[: shard.number]:
            await self._started[earlier.number].wait()

    async def generate(self, shard: Shard) -> int:
        """Generates a shard's remaining rollouts, and lost rollouts of earlier shards. Returns the number of groups.

        Raises ``RunAbortedError`` if the endpoint refuses everything, and ``RunCancelledError`` if the run is stopped.
        """
        await self._home.call(self._timed(self._generate(shard)))
        return len(shard.remaining)

    async def _generate(self, shard: Shard) -> None:
        if self._generated[shard.number].is_set() and self.error is None:
            return
        self._tries[shard.number] += 1
        if self._tries[shard.number] > 1:
            await self._settle(shard)
        for earlier in self.shards[: shard.number]:
            if self._tries[earlier.number]:
                await self._started[earlier.number].wait()
        await self._work(self._engine.generate(self._remaining(shard), self._queues[shard.number]))
        self._started[shard.number].set()  # also if the budget is spent before the last group has been taken
        self._generated[shard.number].set()
        logger.info("Generated %s", shard.label)

    async def all_generated(self) -> AsyncIterator[Shard]:
        for shard in self.shards:
            await self._generated[shard.number].wait()
        for shard in self.shards:
            if self.error is None:
                yield shard

    async def score(self, shard: Shard) -> int:
        """Scores and records a shard's groups as they arrive.

        Another call scores groups whose scoring failed temporarily.
        """
        await self._home.call(self._timed(self._score(shard)))
        return len(shard.remaining)

    def check_scored(self, shard: Shard) -> None:
        """Raises ``UnscoredError`` if scoring failed temporarily. Calling ``score`` tries again."""
        if count := len(self._unscored[shard.number]):
            reason = self._engine.scoring_failure
            raise UnscoredError(
                f"{count} of {counted(len(shard.remaining), 'group')} of {shard.label} could not be scored: {reason}"
            )

    async def _score(self, shard: Shard) -> None:
        number, unscored = shard.number, self._unscored[shard.number]
        if number in self._scored and not unscored:
            return
        queue = self._queues[number]
        if unscored:
            self._engine.forget_failures()
            self._engine.requeue(unscored, queue)
        if number in self._scored:
            queue.put_nowait(None)
        self._being_scored.add(number)
        try:
            await self._work(self._engine.score(queue, unscored))
        finally:
            self._being_scored.discard(number)
        self._scored.add(number)
        logger.info("Scored %s", shard.label)

    def aggregate(self) -> RunMetadata:
        """Sorts and summarizes the results, and replaces ``metadata.json``. A second call does nothing."""
        self.opened.error = self.error or self._engine.spent
        if self.metadata.summary is not None:
            return self.metadata
        made, pace = self.progress, [pace.changes for pace in self.paces() if pace.changes]
        return self.opened.finish({"sent": made.requests, "refused": made.refused, "again": made.retries, "pace": pace})

    async def _timed(self, stage: Coroutine[Any, Any, None]) -> None:
        self._start_timer()
        await stage

    def _start_timer(self) -> None:
        if (seconds := self._time_limit_seconds) is not None and self._timer is None:
            overtime = RunTimedOutError(f"Stopped after {seconds / 60:g} minutes (timeout_minutes)")
            self._timer = asyncio.get_running_loop().call_later(seconds, self.stop, overtime)

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        if self.error is not None:
            work.close()
            raise RunCancelledError(f"The run was stopped: {self.error}")
        task = asyncio.ensure_future(work)
        self._working.add(task)
        try:
            await task
        except asyncio.CancelledError:
            outer = asyncio.current_task()
            if self.error is None or (outer is not None and outer.cancelling()):
                raise
            raise RunCancelledError(f"The run was stopped: {self.error}") from None
        finally:
            self._working.discard(task)

    def _remaining(self, shard: Shard) -> Iterator[Group]:
        for example_id in (*self._lost_before(shard), *shard.remaining):
            yield from self._plan.remaining_groups(self.opened.journal, example_id)
        self._started[shard.number].set()

    def _lost_before(self, shard: Shard) -> list[int]:
        """Returns examples of earlier generated shards. A retried shard takes over lost rollouts of these examples."""
        if self._tries[shard.number] == 1 or shard.number not in self._being_scored:
            return []
        settled = self._being_scored | self._scored
        done = [
            each
            for each in self.shards[: shard.number]
            if self._generated[each.number].is_set() and each.number in settled
        ]
        lost = [example_id for each in done for example_id in each.remaining if example_id not in self._taken_over]
        self._taken_over.update(lost)
        return lost

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._home.call(self._close())
        self._home.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._home.run(self._close())
        self._home.stop()

    async def _close(self) -> None:
        _open_runs.remove(self)
        async with AsyncExitStack() as closing:
            closing.callback(self.opened.close)
            for close in reversed(self._closing):
                closing.push_async_callback(close)

    async def _settle(self, shard: Shard) -> None:
        """Waits until the groups of an earlier try are scored, or discards them if they are not being scored."""
        if shard.number in self._being_scored:
            for each in self.shards[: shard.number + 1]:
                if each.remaining and each.number in self._being_scored:
                    await self._queues[each.number].join()
        else:
            self._engine.discard(self._queues[shard.number])
            self._queues[shard.number] = asyncio.Queue()
            self._unscored[shard.number].clear()
        self._engine.forget_failures()

    def _count_what_is_done(self) -> None:
        journal, progress = self.opened.journal, self.progress
        remaining, again = 0, set[Key]()
        for shard in self.shards:
            for example_id in shard.remaining:
                members = self._plan.members(journal, example_id)
                remaining += len(members)
                again.update(key for key in members if journal.is_scored(key))
            if not shard.remaining:
                self._started[shard.number].set()
                self._generated[shard.number].set()
                self._queues[shard.number].put_nowait(None)
        rewards = [reward for key, reward in journal.rewards() if key not in again]
        progress.total = self.metadata.rollouts
        progress.already_done = self.metadata.rollouts - remaining
        progress.reward_sum, progress.reward_count = sum(rewards), len(rewards)
