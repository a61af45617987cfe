"""``Run``: a run while it is under way: what is owed, in shards, and how each comes to be done.

A plain class, which Prefect passes from task to task as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self

from nightjar.calling.places import Places
from nightjar.clients.pace import Pace
from nightjar.engine.budget import Budget
from nightjar.engine.engine import Engine, Group, GroupQueue
from nightjar.engine.plan import Plan, Shard
from nightjar.engine.progress import Progress
from nightjar.engine.tasks import seldom_collected, task_group
from nightjar.errors import RunCancelledError, RunTimedOutError
from nightjar.rollout.records import Key
from nightjar.runs import OpenRun, RunDirectory, RunMetadata

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 2.0

_under_way: list[Run] = []


def runs_under_way() -> Sequence[Run]:
    """Returns the runs that are open in this process, the oldest first: for who shows how far they are."""
    return tuple(_under_way)


class Run:
    """A run that is open in this process; as a context manager it is closed at the end.

    Args:
        opened: the run on disk, or in memory.
        engine: what generates and scores.
        plan: how rollouts form groups.
        example_ids: its examples, in the order in which they are taken.
        max_shards: how many blocks they are cut into at the most.
        is_interleaved: groups are scored as they are generated.
        time_limit_seconds: how long its stages may take; None for no limit.
        closing: called at the end, in turn: what else the run holds open.
        paces: returns how fast its endpoint, or each replica of it, is asked.

    Attributes:
        opened: the run on disk, or in memory.
        shards: blocks of groups, those that owe nothing included.
        unpublished: why it is not in the warehouse; None where it is there, or may still be.
        hub_url: where it is on the Hugging Face Hub; None where it is not there, or was not pushed.
        unpushed: why it is not on the Hugging Face Hub; None where it is, may still be, or need not be.
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
        self._stages: asyncio.Task[Any] | None = None
        self._have_ended = False
        self._working: set[asyncio.Task[None]] = set()
        self._scored: set[int] = set()
        self.is_interleaved = is_interleaved
        self.shards = plan.shards(opened.journal, example_ids, max_shards)
        self._queues: dict[int, GroupQueue] = {shard.number: asyncio.Queue() for shard in self.shards}
        self._started = {shard.number: asyncio.Event() for shard in self.shards}
        self._generated = {shard.number: asyncio.Event() for shard in self.shards}
        self._tries: Counter[int] = Counter()
        self._taken_over: set[int] = set()
        self._count_what_is_done()
        _under_way.append(self)

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.metadata.run_id

    @property
    def directory(self) -> RunDirectory:
        """Where it is on disk, which it must be."""
        assert self.opened.directory is not None, "the run is kept in memory"
        return self.opened.directory

    @property
    def metadata(self) -> RunMetadata:
        """What it is and how it stands."""
        return self.opened.metadata

    @property
    def error(self) -> BaseException | None:
        """What stopped it before its end; None where it came, or may still come, to its end."""
        return self.opened.error

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._engine.progress

    @property
    def budget(self) -> Budget | None:
        """What it may spend, perhaps together with others; None for no limit."""
        return self._engine.budget

    @property
    def generating(self) -> Places:
        """How many of its rollouts are generated at once."""
        return self._engine.generating

    @property
    def has_more_to_start(self) -> bool:
        """Says whether rollouts wait to be generated."""
        return self.generating.is_waited_for or not all(started.is_set() for started in self._started.values())

    @asynccontextmanager
    async def stages(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Waits for the stages that are started in the block; what stops one stops all and is the run's error.

        What is finished can be added up and published afterwards all the same.
        """
        self._stages = asyncio.current_task()
        try:
            with self._time_limit(), seldom_collected():
                async with task_group() as stages:
                    yield stages
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 - whoever started them looks at it
            if self.error is None:
                self.opened.error = error
            elif isinstance(error, asyncio.CancelledError) and self._stages is not None:
                self._stages.uncancel()
        finally:
            self._stages, self._have_ended = None, True

    def stop(self, error: BaseException) -> None:
        """Ends what is under way, and lets nothing begin any more; what is finished stays.

        A stage that has not ended 2 s later is cancelled. Stages that have not begun do not begin; once they have
        ended, there is nothing to stop.

        Args:
            error: why; the first reason stands.
        """
        if self.error is not None or self._have_ended:
            return
        self.opened.error = error
        for event in (*self._started.values(), *self._generated.values()):
            event.set()
        for work in self._working:
            work.cancel()
        if self._stages is not None:
            asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._cancel, self._stages)

    async def in_turn(self) -> AsyncIterator[Shard]:
        """Yields each shard when its first rollout may start, until the run is stopped."""
        for shard in self.shards:
            await self.turn(shard)
            if self.error is None:
                yield shard

    async def turn(self, shard: Shard) -> None:
        """Waits until the first rollout of a shard may start: all of the shards before it have started theirs."""
        for earlier in self.shards:
            if earlier.number < shard.number:
                await self._started[earlier.number].wait()

    async def generate(self, shard: Shard) -> int:
        """Generates what a shard owes; groups go on to scoring as they are done.

        After an outage it may be called again: what was finished is not generated twice, and what shards before it lost
        in the outage is generated with it.

        Returns:
            How many groups there were.

        Raises:
            RunAbortedError: the endpoint refuses everything.
            RunCancelledError: the run is stopped.
            RunDirectoryError: the disk is full or broken.
        """
        if self._generated[shard.number].is_set() and self.error is None:
            return len(shard.owed)
        self._tries[shard.number] += 1
        if self._tries[shard.number] > 1:
            await self._settle(shard)
        await self.turn(shard)
        await self._work(self._engine.generate(self._owed(shard), self._queues[shard.number]))
        self._started[shard.number].set()  # also where the budget is spent before the last has been taken
        self._generated[shard.number].set()
        logger.info("Generated %s", shard.label)
        return len(shard.owed)

    async def all_generated(self) -> AsyncIterator[Shard]:
        """Yields the shards when all are generated; none where the run is stopped."""
        for shard in self.shards:
            await self._generated[shard.number].wait()
        for shard in self.shards:
            if self.error is None:
                yield shard

    async def score(self, shard: Shard) -> int:
        """Scores and records a shard's groups as they come.

        Returns:
            How many groups there were.

        Raises:
            RunCancelledError: the run is stopped.
        """
        if shard.number not in self._scored:
            await self._work(self._engine.score(self._queues[shard.number]))
            self._scored.add(shard.number)
        logger.info("Scored %s", shard.label)
        return len(shard.owed)

    def aggregate(self) -> RunMetadata:
        """Puts the results in order, adds them up, and replaces ``metadata.json``; once is enough.

        Raises:
            RunDirectoryError: ``metadata.json`` cannot be written.
        """
        self.opened.error = self.error or self._engine.spent
        return self.opened.finish(self._requests()) if self.metadata.summary is None else self.metadata

    def _requests(self) -> dict[str, Any]:
        made = self.progress
        pace = [pace.changes for pace in self.paces() if pace.changes]
        return {"sent": made.requests, "refused": made.refused, "again": made.retries, "pace": pace}

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        """Does the work of a stage, which ``stop`` ends."""
        if self.error is not None:
            work.close()
            raise self._stopped()
        task = asyncio.ensure_future(work)
        self._working.add(task)
        try:
            await task
        except asyncio.CancelledError:
            outer = asyncio.current_task()
            if self.error is None or (outer is not None and outer.cancelling()):
                raise
            raise self._stopped() from None
        finally:
            self._working.discard(task)

    def _stopped(self) -> RunCancelledError:
        return RunCancelledError(f"The run was stopped: {self.error}")

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        seconds = self._time_limit_seconds
        if seconds is None:
            yield
            return
        error = RunTimedOutError(f"Stopped after {seconds / 60:g} minutes (timeout_minutes)")
        timer = asyncio.get_running_loop().call_later(seconds, self.stop, error)
        try:
            yield
        finally:
            timer.cancel()

    def _cancel(self, stages: asyncio.Task[Any]) -> None:
        """Cancels the stages that were stopped and have not ended."""
        if self._stages is stages:
            stages.cancel()

    def _owed(self, shard: Shard) -> Iterator[Group]:
        """Yields the groups that a shard owes; when the last has been taken, it is the next shard's turn."""
        for example_id in (*self._lost_before(shard), *shard.owed):
            yield from self._plan.owed(self.opened.journal, example_id)
        self._started[shard.number].set()

    def _lost_before(self, shard: Shard) -> list[int]:
        """Returns the examples of shards that are generated which a shard that is tried again takes over."""
        if self._tries[shard.number] == 1 or not self.is_interleaved:
            return []
        done = [each for each in self.shards[: shard.number] if self._generated[each.number].is_set()]
        lost = [example_id for each in done for example_id in each.owed if example_id not in self._taken_over]
        self._taken_over.update(lost)
        return lost

    async def __aenter__(self) -> Self:
        """Is open already."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes what it holds open, and unlocks the run directory."""
        _under_way.remove(self)
        async with AsyncExitStack() as closing:
            closing.callback(self.opened.close)
            for close in reversed(self._closing):
                closing.push_async_callback(close)

    async def _settle(self, shard: Shard) -> None:
        """Has what an earlier try handed over scored, so that the journal says what is owed; or owed again."""
        if self.is_interleaved:
            for each in self.shards[: shard.number + 1]:
                if each.owed:
                    await self._queues[each.number].join()
        else:
            self._queues[shard.number] = asyncio.Queue()
        self._engine.forget_failures()

    def _count_what_is_done(self) -> None:
        journal, progress = self.opened.journal, self.progress
        owed, again = 0, set[Key]()
        for shard in self.shards:
            for example_id in shard.owed:
                members = self._plan.members(journal, example_id)
                owed += len(members)
                again.update(key for key in members if journal.is_scored(key))
            if not shard.owed:
                self._started[shard.number].set()
                self._generated[shard.number].set()
                self._queues[shard.number].put_nowait(None)
        rewards = [reward for key, reward in journal.rewards() if key not in again]
        progress.total = self.metadata.rollouts
        progress.already_done = self.metadata.rollouts - owed
        progress.reward_sum, progress.reward_count = sum(rewards), len(rewards)
