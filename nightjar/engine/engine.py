"""``Engine``: generates and scores the rollouts of groups, many at once, within limits.

Generation and scoring are two stages joined by a queue, so that a group is scored as soon as it is generated.
Several shards of a run may share one engine: they take turns in starting rollouts, the first one first.
Memory holds what is under way; what is finished goes to the recorder and is forgotten.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from nightjar.calling.cancellation import user_error
from nightjar.calling.places import Places
from nightjar.clients.failures import Failure, classify
from nightjar.clients.repeating import watch
from nightjar.engine.budget import Budget
from nightjar.engine.guard import FailureGuard
from nightjar.engine.intact import check_intact, check_scored
from nightjar.engine.progress import Progress
from nightjar.engine.retry import RetryPolicy
from nightjar.engine.tasks import task_group
from nightjar.engine.watching import RequestWatch
from nightjar.errors import BudgetSpentError, RunError, ScoringError
from nightjar.rollout.records import Key, key_of
from nightjar.rollout.state import RolloutInput, State, new_state
from nightjar.rollout.timing import RolloutTiming
from nightjar.rubrics import Rubric
from nightjar.rubrics.rubric import scoring_places

_BACKLOG_PER_PLACE = 4


@dataclass(slots=True)
class Group:
    """What is owed of the rollouts of one example.

    Attributes:
        example_id: the example.
        to_generate: indexes of the rollouts that the model is asked for.
        to_restore: indexes of rollouts that were generated before and are scored, or scored again, with them.
        states: by rollout index, filled while the group is under way.
    """

    example_id: int
    to_generate: tuple[int, ...]
    to_restore: tuple[int, ...] = ()
    states: dict[int, State] = field(default_factory=dict)

    @property
    def members(self) -> tuple[int, ...]:
        """The indexes of all rollouts that are owed."""
        return (*self.to_generate, *self.to_restore)


GroupQueue: TypeAlias = "asyncio.Queue[Group | None]"
"""Generated groups on their way to scoring; None after the last."""


class Rollouts(Protocol):
    """Makes attempts at rollouts."""

    def input(self, example_id: int, rollout_index: int) -> RolloutInput:
        """Returns a fresh input, which nothing else shares."""

    async def new_state(self, rollout_input: RolloutInput) -> State:
        """Returns a state in which nothing has happened yet."""

    async def attempt(self, rollout_input: RolloutInput) -> State:
        """Makes one attempt. What it raises becomes the rollout's error."""


class Recorder(Protocol):
    """Keeps what is finished."""

    def attempted(self, state: State) -> None:
        """Keeps a finished attempt; ``state["error"]`` says whether it failed."""

    def scored(self, states: Sequence[State]) -> Sequence[Mapping[str, Any]]:
        """Keeps the results of a group, and returns them as rows."""

    def restore(self, state: State) -> State:
        """Fills a fresh state with a rollout that was generated before, and returns it."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of an engine.

    Attributes:
        max_generating: rollouts generated at once; 0 or less for no limit.
        max_scoring: calls of reward functions at once; 0 or less for no limit.
        is_interleaved: scoring runs beside generation, so generation may wait for it.
        score_rollouts: False records rollouts without a reward.
        has_succeeded: the endpoint has answered before, in an earlier session of the run.
        retry: when to make another attempt at a rollout.
        budget: what may be spent; None for no limit.
        model: which one is asked, for its prices.
    """

    max_generating: int = 32
    max_scoring: int = 32
    is_interleaved: bool = True
    score_rollouts: bool = True
    has_succeeded: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    budget: Budget | None = None
    model: str = ""


class Engine:
    """Runs groups.

    Args:
        rollouts: makes the attempts.
        rubric: scores the groups.
        recorder: keeps what is finished.
        options: limits.
        progress: counters to keep up to date.

    Attributes:
        generating: how many rollouts are generated at once.
        budget: what may be spent; None for no limit.
        spent: says that the budget is spent, and something left undone for it; None otherwise.
    """

    def __init__(
        self,
        *,
        rollouts: Rollouts,
        rubric: Rubric,
        recorder: Recorder,
        options: EngineOptions,
        progress: Progress | None = None,
    ) -> None:
        self._rollouts = rollouts
        self._rubric = rubric
        self._recorder = recorder
        self._options = options
        self.progress = progress or Progress()
        self.generating = Places(options.max_generating)
        self._scoring = Places(options.max_scoring)
        backlog = _BACKLOG_PER_PLACE * options.max_generating if options.is_interleaved else 0
        self._backlog = Places(backlog)
        self.budget = options.budget
        self.spent: BudgetSpentError | None = None
        self._failed: set[Key] = set()
        self._guard = FailureGuard(options.has_succeeded, max(50, 2 * options.max_generating))
        self._asking = RequestWatch(self._guard, self.progress, options.budget, options.model, self.generating)
        self._judging = RequestWatch(FailureGuard(), self.progress, options.budget)
        self._reward_calls = Places(options.max_scoring)

    def forget_failures(self) -> None:
        """Lets the endpoint be asked again after ``generate`` was stopped by what it answered."""
        self._guard.forget()

    async def generate(self, groups: Iterable[Group], ready: GroupQueue) -> None:
        """Generates groups, and puts each into ``ready`` when its last rollout has ended; None after the last.

        Where it raises, groups that were not put into ``ready`` are to be generated again; those that were are scored.
        Where the budget is spent, it ends with those that are done.

        Raises:
            RunAbortedError: the endpoint refuses everything.
        """
        handover = _Handover(ready, self._backlog)
        try:
            async with task_group() as tasks:
                for group in groups:
                    if self.spent is not None:
                        break
                    await self._start(group, handover, tasks)
        except BaseException:
            handover.give_up()
            raise
        handover.give_up()
        ready.put_nowait(None)

    async def score(self, ready: GroupQueue) -> None:
        """Scores and records groups as they come, until None comes."""
        async with task_group() as tasks:
            while (group := await ready.get()) is not None:
                await self._scoring.acquire()
                tasks.create_task(self._score(group, ready))
        ready.task_done()

    async def _start(self, group: Group, handover: _Handover, tasks: asyncio.TaskGroup) -> None:
        await handover.begin()
        self._guard.check()
        if not group.to_generate:
            handover.complete(group)
        for rollout_index in group.to_generate:
            await self.generating.acquire()
            rollout = self._generate(group, rollout_index, handover)
            try:
                task = tasks.create_task(rollout)
            except RuntimeError:  # another has stopped them all
                rollout.close()
                self.generating.release()
                raise
            task.add_done_callback(self._leave)  # also of a task that is cancelled before it began

    def _leave(self, _task: asyncio.Task[None]) -> None:
        self.generating.release()

    async def _generate(self, group: Group, rollout_index: int, handover: _Handover) -> None:
        watch.set(self._asking)
        try:
            state = await self._generated(group.example_id, rollout_index)
        except BudgetSpentError as error:
            self.spent = error
            return
        group.states[rollout_index] = state
        self.progress.generated += 1
        if len(group.states) == len(group.to_generate):
            handover.complete(group)
        failure = _failure_of(state)
        if failure is not None:
            self._guard.failed(failure, group.example_id)

    async def _generated(self, example_id: int, rollout_index: int) -> State:
        """Returns the first attempt that succeeds or fails for good, or the last."""
        retry = self._options.retry
        for attempts in itertools.count(1):
            state = await self._attempt(example_id, rollout_index)
            failure = _failure_of(state)
            if failure is None or not retry.wants_another(attempts, failure):
                break
            await self._asking.wait(retry.wait_seconds(attempts, failure))
        return state

    async def _attempt(self, example_id: int, rollout_index: int) -> State:
        rollout_input = self._rollouts.input(example_id, rollout_index)
        try:
            state = await self._rollouts.attempt(rollout_input)
            check_intact(state, Key(rollout_input["example_id"], rollout_input["rollout_index"]))
            self._recorder.attempted(state)
        except RunError:
            raise
        except BaseException as raised:  # noqa: BLE001 - environments are user code
            state = new_state(self._rollouts.input(example_id, rollout_index), error=user_error(raised))
            self._recorder.attempted(state)
        if state["error"] is None:
            self._guard.succeeded()
        else:
            self._asking.check()
        return state

    async def _score(self, group: Group, ready: GroupQueue) -> None:
        try:
            for rollout_index in group.to_restore:
                rollout_input = self._rollouts.input(group.example_id, rollout_index)
                state = await self._rollouts.new_state(rollout_input)
                group.states[rollout_index] = self._recorder.restore(state)
            states = [group.states[index] for index in sorted(group.states)]
            keys = [key_of(state) for state in states]
            try:
                await self._apply_rubric(states)
            except BudgetSpentError as error:
                self.spent = error
                return
            states = [self._checked(state, key, group) for state, key in zip(states, keys, strict=True)]
            self._recorder.scored(states)
            self._count(states)
        finally:
            self._scoring.release()
            self._backlog.release()
            ready.task_done()

    def _checked(self, state: State, key: Key, group: Group) -> State:
        """Returns a scored state, or an empty one with an error where user code has ruined it."""
        try:
            check_scored(state, key)
        except Exception as error:  # noqa: BLE001 - rubrics are user code
            state = new_state(self._rollouts.input(group.example_id, key.rollout_index))
            _fail_scoring(state, error)
        return state

    async def _apply_rubric(self, states: list[State]) -> None:
        if not self._options.score_rollouts:
            return
        start = time.time()
        watch.set(self._judging)
        scoring_places.set(self._reward_calls)
        try:
            await self._rubric.score_group(states)
        except BaseException as raised:  # noqa: BLE001 - rubrics are user code
            error = user_error(raised)
            for state in states:
                _fail_scoring(state, error)
        if any(state.get("error") is not None for state in states):
            self._judging.check()
        for state in states:
            await self._clean_up(state)
            if isinstance(timing := state.get("timing"), RolloutTiming):
                timing.add_scoring(start)

    async def _clean_up(self, state: State) -> None:
        try:
            await self._rubric.cleanup(state)
        except BaseException as raised:  # noqa: BLE001 - rubrics are user code
            _fail_scoring(state, user_error(raised))

    def _count(self, states: Sequence[State]) -> None:
        for state in states:
            key = key_of(state)
            if key in self._failed:  # it is done again, after an outage
                self._failed.remove(key)
                self.progress.failed -= 1
                self.progress.generated -= 1
            if state["error"] is not None:
                self._failed.add(key)
                self.progress.failed += 1
                self.progress.note_error(state["error"])
                continue
            self.progress.scored += 1
            if state["reward"] is not None:
                self.progress.reward_sum += state["reward"]
                self.progress.reward_count += 1


class _Handover:
    """Groups of one ``generate`` on their way to scoring, which generation may have to wait for."""

    def __init__(self, ready: GroupQueue, backlog: Places) -> None:
        self._ready = ready
        self._backlog = backlog
        self._begun = 0

    async def begin(self) -> None:
        """Waits until scoring is not too far behind."""
        await self._backlog.acquire()
        self._begun += 1

    def complete(self, group: Group) -> None:
        """Hands a generated group over; its place is free when it is scored."""
        self._begun -= 1
        self._ready.put_nowait(group)

    def give_up(self) -> None:
        """Frees the places of what will not be handed over."""
        for _ in range(self._begun):
            self._backlog.release()


async def run_groups(engine: Engine, groups: Iterable[Group]) -> None:
    """Generates and scores groups, in one shard.

    Raises:
        RunAbortedError: the endpoint refuses everything.
    """
    ready: GroupQueue = asyncio.Queue()
    async with task_group() as tasks:
        tasks.create_task(engine.generate(groups, ready))
        tasks.create_task(engine.score(ready))


def _failure_of(state: Any) -> Failure | None:
    error = state["error"]
    return None if error is None else classify(error)


def _fail_scoring(state: State, error: Exception) -> None:
    if state.get("error") is None:
        failure = ScoringError(f"The rubric failed: {error or type(error).__name__}")
        failure.__cause__ = error
        state.update(error=failure, reward=None, metrics={}, advantage=None)
