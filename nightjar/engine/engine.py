"""``Engine``: generates and scores groups concurrently, within limits. It keeps only rollouts in progress in memory."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from nightjar.clients.failures import Failure, classify
from nightjar.clients.retries import watch
from nightjar.core.calling.functions import user_error
from nightjar.core.calling.limits import Places, scoring_places
from nightjar.core.rollout.records import Key, key_of
from nightjar.core.rollout.state import RolloutInput, State, new_state
from nightjar.core.rollout.usage import RolloutTiming
from nightjar.engine.intact import check_intact, check_scored
from nightjar.engine.limits import Budget, RetryPolicy
from nightjar.engine.plan import Group, GroupQueue, UnscoredGroups
from nightjar.engine.progress import Progress
from nightjar.engine.requests import FailureGuard, RequestWatch
from nightjar.engine.tasks import task_group
from nightjar.errors import BudgetSpentError, InfraError, RunError, ScoringError, error_chain

# Generated groups that wait for scoring are held in memory, so generation waits when there are too many of them.
_BACKLOG_PER_PLACE = 4


class Rollouts(Protocol):
    """Makes attempts at rollouts. Inputs and states are new. An exception in an attempt becomes the rollout's error."""

    def input(self, example_id: int, rollout_index: int) -> RolloutInput: ...
    async def new_state(self, rollout_input: RolloutInput) -> State: ...
    async def attempt(self, rollout_input: RolloutInput) -> State: ...


class Rubric(Protocol):
    """Sets the rewards and metrics, or the errors, of a group's rollouts, and cleans up after each rollout."""

    async def score_group(self, states: list[State]) -> None: ...
    async def cleanup(self, state: State) -> None: ...


class Recorder(Protocol):
    """Stores attempts and results. ``scored`` returns result rows. ``restore`` fills a state from a stored attempt.

    ``check_writable`` raises ``RunDirectoryError`` if an earlier write failed.
    """

    def check_writable(self) -> None: ...
    def attempted(self, state: State) -> None: ...
    def scored(self, states: Sequence[State]) -> Sequence[Mapping[str, Any]]: ...
    def restore(self, state: State) -> State: ...


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of an engine. 0 or less means no limit.

    ``has_succeeded``: a rollout succeeded in an earlier session. ``patience_seconds``: how long to wait for an endpoint
    that does not answer yet.
    """

    max_generating: int = 32
    max_scoring: int = 32
    is_interleaved: bool = True
    score_rollouts: bool = True
    has_succeeded: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    budget: Budget | None = None
    model: str = ""
    patience_seconds: float = 0.0


class Engine:
    """Generates and scores groups. ``spent`` is set if the budget ran out while rollouts were remaining."""

    def __init__(self, *, rollouts: Rollouts, rubric: Rubric, recorder: Recorder, options: EngineOptions) -> None:
        self._rollouts = rollouts
        self._rubric = rubric
        self._recorder = recorder
        self._options = options
        self.progress = Progress()
        self.generating = Places(options.max_generating)
        self._scoring = Places(options.max_scoring)
        self._backlog = Places(_BACKLOG_PER_PLACE * options.max_generating if options.is_interleaved else 0)
        self._backlog_ceiling = self._backlog.ceiling
        self._scorers = 0
        self._backlog.set_ceiling(math.inf)
        self.budget = options.budget
        self.spent: BudgetSpentError | None = None
        self.scoring_failure = ""
        self._has_scored = False
        self._failed: set[Key] = set()
        self._guard = FailureGuard(options.has_succeeded, max(50, 2 * options.max_generating))
        self._asking = RequestWatch(
            self._guard, self.progress, options.budget, options.model, self.generating, options.patience_seconds
        )
        self._judge_guard = FailureGuard()
        self._judging = RequestWatch(self._judge_guard, self.progress, options.budget)
        self._reward_calls = Places(options.max_scoring)

    def forget_failures(self) -> None:
        self._guard.forget()
        self._judge_guard.forget()

    async def generate(self, groups: Iterable[Group], ready: GroupQueue) -> None:
        """Generates groups. Puts each group into ``ready`` after its last rollout, and None after the last group.

        Ends early when the budget is spent, and with ``RunAbortedError`` when the endpoint refuses everything.
        """
        handover = _Handover(ready, self._backlog)
        try:
            async with task_group() as tasks:
                for group in groups:
                    if self.spent is not None:
                        break
                    await self._start(group, handover, tasks)
        finally:
            handover.give_up()
        ready.put_nowait(None)

    async def score(self, ready: GroupQueue, unscored: UnscoredGroups | None = None) -> None:
        """Scores and records groups as they arrive, until None has arrived and the queue is empty.

        Afterwards, also after an error, ``unscored`` holds the groups to score again.
        """
        has_all = False
        self._count_scorers(1)
        try:
            async with task_group() as tasks:
                await self._score_each(ready, {} if unscored is None else unscored, tasks)
                has_all = True
        except BaseException:
            if has_all:
                ready.put_nowait(None)  # for the next call
            raise
        finally:
            self._count_scorers(-1)

    def requeue(self, unscored: UnscoredGroups, ready: GroupQueue) -> None:
        for group in unscored.values():
            self._backlog.occupy()
            ready.put_nowait(group)
        unscored.clear()

    def discard(self, ready: GroupQueue) -> None:
        """Empties a queue that is not being scored. The rollouts stay in the journal."""
        while not ready.empty():
            if ready.get_nowait() is not None:
                self._backlog.release()

    def _count_scorers(self, change: int) -> None:
        self._scorers += change
        self._backlog.set_ceiling(self._backlog_ceiling if self._scorers else math.inf)

    async def _score_each(self, ready: GroupQueue, unscored: UnscoredGroups, tasks: asyncio.TaskGroup) -> None:
        is_last = False
        while not (is_last and ready.empty()):
            group = await ready.get()
            if group is None:
                is_last = True
                ready.task_done()
                continue
            unscored[id(group)] = group
            try:
                await self._scoring.acquire()
            except BaseException:
                self._backlog.release()
                ready.task_done()
                raise
            task = tasks.create_task(self._score(group, unscored))
            # a callback also runs for a task that is cancelled before it begins
            task.add_done_callback(partial(self._end_scoring, ready))

    def _end_scoring(self, ready: GroupQueue, _task: asyncio.Task[None]) -> None:
        self._scoring.release()
        self._backlog.release()
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
            task.add_done_callback(
                lambda _: self.generating.release()
            )  # also of a task that is cancelled before it began

    async def _generate(self, group: Group, rollout_index: int, handover: _Handover) -> None:
        watch.set(self._asking)
        try:
            state = await self._generated(group.example_id, rollout_index)
        except BudgetSpentError as error:
            self.spent = error
            return
        group.states[rollout_index] = state
        self.progress.generated += key_of(state) not in self._failed
        if len(group.states) == len(group.to_generate):
            handover.complete(group)
        failure = _failure_of(state)
        if failure is not None:
            self._guard.failed(failure, group.example_id)

    async def _generated(self, example_id: int, rollout_index: int) -> State:
        retry = self._options.retry
        for attempts in itertools.count(1):
            state = await self._attempt(example_id, rollout_index)
            failure = _failure_of(state)
            if failure is None or not retry.wants_another(attempts, failure):
                break
            await self._asking.wait(retry.wait_seconds(attempts, failure))
        return state

    async def _attempt(self, example_id: int, rollout_index: int) -> State:
        self._recorder.check_writable()
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

    async def _score(self, group: Group, unscored: UnscoredGroups) -> None:
        for rollout_index in group.to_restore:
            rollout_input = self._rollouts.input(group.example_id, rollout_index)
            state = await self._rollouts.new_state(rollout_input)
            group.states[rollout_index] = self._recorder.restore(state)
        unscored[id(group)] = again = group.as_generated()
        states = [group.states[index] for index in sorted(group.states)]
        keys = [key_of(state) for state in states]
        try:
            await self._apply_rubric(states)
        except BudgetSpentError as error:
            self.spent = error
            del unscored[id(group)]
            return
        states = [self._checked(state, key, group) for state, key in zip(states, keys, strict=True)]
        self._recorder.scored(states)
        self._count(states)
        if not self._is_worth_another(states, again):
            del unscored[id(group)]

    def _is_worth_another(self, states: Sequence[State], generated: Group) -> bool:
        errors = [state["error"] for state in states if key_of(state).rollout_index not in generated.states]
        away = [error for error in errors if error is not None and _is_away(error)]
        if away:
            self.scoring_failure = classify(away[0]).message
        self._has_scored = self._has_scored or not any(errors)
        return bool(away) and self._has_scored

    def _checked(self, state: State, key: Key, group: Group) -> State:
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
        has_cleanup = getattr(self._rubric, "has_cleanup", True)  # a user's object may have only the protocol
        for state in states:
            if has_cleanup:
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
            if key in self._failed:  # the rollout is repeated after an outage
                self._failed.remove(key)
                self.progress.failed -= 1
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
    """Passes the groups of one ``generate`` call to scoring, and holds generation back when scoring is far behind."""

    def __init__(self, ready: GroupQueue, backlog: Places) -> None:
        self._ready = ready
        self._backlog = backlog
        self._begun = 0

    async def begin(self) -> None:
        await self._backlog.acquire()
        self._begun += 1

    def complete(self, group: Group) -> None:
        self._begun -= 1
        self._ready.put_nowait(group)

    def give_up(self) -> None:
        for _ in range(self._begun):
            self._backlog.release()


async def run_groups(engine: Engine, groups: Iterable[Group]) -> None:
    ready: GroupQueue = asyncio.Queue()
    async with task_group() as tasks:
        tasks.create_task(engine.generate(groups, ready))
        tasks.create_task(engine.score(ready))


def _failure_of(state: Any) -> Failure | None:
    error = state["error"]
    return None if error is None else classify(error)


def _is_away(error: BaseException) -> bool:
    return classify(error).is_connection or any(isinstance(cause, InfraError) for cause in error_chain(error))


def _fail_scoring(state: State, error: Exception) -> None:
    if state.get("error") is None:
        failure = ScoringError(f"The rubric failed: {error or type(error).__name__}")
        failure.__cause__ = error
        state.update(error=failure, reward=None, metrics={}, advantage=None)
