"""Runs one sample of a task: its sandbox, its solvers within their limits, and its scorers.

The steps are those of ``inspect_ai._eval.task.run``, without its logs, displays and retries. Inspect has no public
function for this, so all its inner parts that Nightjar needs are imported here and in the modules beside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import anyio
from inspect_ai import Task
from inspect_ai._eval.context import init_task_context
from inspect_ai._eval.task.generate import task_generate
from inspect_ai._eval.task.images import capture_task_input_media, materialize_sample_input
from inspect_ai._eval.task.util import sample_messages
from inspect_ai._util.exception import TerminateSampleError
from inspect_ai._util.working import init_sample_working_time
from inspect_ai.dataset import Sample
from inspect_ai.log._samples import active_sample
from inspect_ai.log._transcript import Transcript, init_transcript
from inspect_ai.model import GenerateConfig, Model, ModelName
from inspect_ai.model._model import init_model_usage, init_role_usage, init_sample_model_data
from inspect_ai.scorer import Score, Scorer, Target
from inspect_ai.scorer._score import init_scoring_context
from inspect_ai.scorer._scorer import unique_scorer_name
from inspect_ai.solver import Plan, TaskState
from inspect_ai.solver._fork import set_task_generate
from inspect_ai.solver._task_state import sample_state, set_sample_state
from inspect_ai.util import LimitExceededError, time_limit, turn_limit, working_limit
from inspect_ai.util._limit import monitor_working_limit
from inspect_ai.util._store import init_subtask_store

logger = logging.getLogger(__name__)

OPERATOR = "operator"


@dataclass
class SampleRun:
    """One attempt at a sample. After ``run``, ``state``, ``scores`` and the kind of the reached ``limit`` are set.

    ``seconds`` is a time limit in addition to that of the task; None means no further limit.
    """

    task: Task
    plan: Plan
    scorers: dict[str, Scorer]
    sample: Sample
    epoch: int
    model: Model
    roles: dict[str, Model]
    seconds: float | None = None
    sandbox: Callable[[Sample], AbstractAsyncContextManager[Any]] | None = None
    before_scoring: Callable[[], None] = lambda: None
    state: TaskState = field(init=False)
    scores: dict[str, Score] = field(default_factory=dict)
    limit: str | None = None

    async def run(self) -> None:
        """Runs the solvers and the scorers. Changes context variables, so it needs an asyncio task of its own."""
        self.sample = await materialize_sample_input(self.sample, capture_task_input_media([self.sample]))
        self._init()
        sample, state = self.sample, self.state
        async with (
            active_sample(
                task=self.task.name, log_location="", model=str(self.model), sample=sample, epoch=self.epoch,
                message_limit=state.message_limit, token_limit=state.token_limit, cost_limit=None,
                time_limit=self.task.time_limit, working_limit=self.task.working_limit, fails_on_error=True,
                transcript=self._transcript, eval_id="", sample_uuid=state.uuid,
            ) as active,
            self.sandbox(sample) if self.sandbox is not None else nullcontext(),
        ):  # fmt: skip
            init_sample_working_time(time.monotonic())
            try:
                await self._solve(active)
                await self._score()
            finally:
                if self.task.cleanup is not None:
                    await self._clean_up(self.task.cleanup)

    async def _clean_up(self, cleanup: Callable[[TaskState], Awaitable[None]]) -> None:
        """Calls the clean-up of the task. Its failure is only logged, as in Inspect."""
        with anyio.CancelScope(shield=True):
            try:
                await cleanup(self.state)
            except Exception as error:  # noqa: BLE001 - the task's code
                logger.warning("The clean-up of task %r failed: %s", self.task.name, error)

    def _init(self) -> None:
        task, sample = self.task, self.sample
        init_model_usage({})
        init_role_usage({})
        init_task_context(self.model, self.roles, task.config, task_metadata=task.metadata)
        self.state = deepcopy(
            TaskState(
                sample_id=sample.id, epoch=self.epoch, model=ModelName(self.model), input=sample.input,
                target=Target(sample.target), choices=sample.choices, messages=sample_messages(sample),
                message_limit=task.message_limit, token_limit=task.token_limit,
                token_limit_type=task.token_limit_type or "all", completed=False, metadata=sample.metadata or {},
            )
        )  # fmt: skip
        self._transcript = Transcript()
        init_sample_model_data()
        set_sample_state(self.state)
        init_transcript(self._transcript)
        init_subtask_store(self.state.store)
        init_scoring_context([*self.scorers.values()], Target(sample.target))
        set_task_generate(self._generate)

    async def _generate(self, state: TaskState, tool_calls: str = "loop", **config: Any) -> TaskState:
        cache = config.pop("cache", False)
        return await task_generate(self.model, state, tool_calls, cache, GenerateConfig(**config))

    async def _solve(self, active: Any) -> None:
        """Runs the solvers. If a limit is reached, the latest state is scored."""
        state, seconds = self.state, _least(self.task.time_limit, self.seconds)
        try:
            with ExitStack() as limits:
                for limit in (
                    state._token_limit,  # noqa: SLF001 - so that a solver can change them
                    state._message_limit,  # noqa: SLF001
                    turn_limit(self.task.turn_limit),
                    time_limit(seconds),
                    working_limit(self.task.working_limit),
                ):
                    limits.enter_context(limit)
                await _in_task_group(active, self._run_plan)
        except LimitExceededError as error:
            self.state, self.limit = sample_state() or self.state, error.type
        except TerminateSampleError:
            self.state, self.limit = sample_state() or self.state, OPERATOR
        self.state.completed = True
        set_sample_state(self.state)

    async def _run_plan(self) -> None:
        self.state = await self.plan(self.state, self._generate)

    async def _score(self) -> None:
        """Scores as Inspect does: within half of the time limit; the scores of solvers come last."""
        self.before_scoring()
        state, seconds = self.state, _least(self.task.time_limit, self.seconds)
        state.scores = {} if state.scores is None else state.scores
        of_solvers = [*state.scores]
        with time_limit(seconds / 2 if seconds else None):
            for name, scorer in self.scorers.items():
                score = await scorer(state, Target(self.sample.target))
                if score is not None:
                    self.scores[name] = state.scores[name] = score
        self.scores |= {name: state.scores[name] for name in of_solvers}


async def _in_task_group(active: Any, run: Callable[[], Awaitable[None]]) -> None:
    """Runs solvers in a task group, which their background tasks join and a limit of working time cancels."""

    async def until_the_end() -> None:
        try:
            active.start(group)
            monitor_working_limit()
            await run()
        except anyio.get_cancelled_exc_class():
            if active.limit_exceeded_error is None:
                raise
        finally:
            group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(until_the_end)
    except ExceptionGroup as errors:
        raise _first_of(errors) from None
    if active.limit_exceeded_error is not None:
        raise active.limit_exceeded_error


def _first_of(error: Exception) -> Exception:
    """Returns the first error of nested groups; a limit is more important than what it cancelled."""
    if not isinstance(error, ExceptionGroup):
        return error
    found = [_first_of(each) for each in error.exceptions]
    return next((each for each in found if isinstance(each, LimitExceededError)), found[0])


def scorer_names(scorers: list[Scorer]) -> dict[str, Scorer]:
    """Returns scorers by their names in Inspect's logs; a second one of a name gets a number."""
    named: dict[str, Scorer] = {}
    for scorer in scorers:
        named[unique_scorer_name(scorer, [*named])] = scorer
    return named


def _least(*values: float | None) -> Any:
    return min((value for value in values if value is not None), default=None)
