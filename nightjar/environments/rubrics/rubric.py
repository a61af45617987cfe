"""``Rubric`` scores rollouts with reward functions and their weights.

A reward function gets the objects that its parameters name: ``prompt``, ``completion``, ``answer``, ``state``,
``info``, ``task``, ``parser``, a class object, a field of the task, or any column of the dataset. It returns a
number. With a plural parameter (``states``, ``completions``, …) it gets the whole group and returns a list.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, TypeAlias

from nightjar.core.calling import call_named, function_name, within
from nightjar.core.calling.decorators import decorated_methods
from nightjar.core.calling.functions import takes_only, user_error
from nightjar.core.calling.limits import Places, scoring_places
from nightjar.core.rollout.state import RewardFunc, State
from nightjar.environments.parsers import Parser, noted_answers
from nightjar.environments.rubrics.calls import (
    CallsInOrder,
    RewardFunction,
    distinct_name,
    finite_number,
    group_objects,
    rollout_objects,
    run_all,
    warn_of_renaming,
)
from nightjar.errors import ScoringError

_is_partial: ContextVar[bool] = ContextVar("is_partial", default=False)
ScoreObjectProvider: TypeAlias = Callable[[State], Mapping[str, object]]
GroupScoreObjectProvider: TypeAlias = Callable[[list[State]], Mapping[str, object]]
REWARD_TIMEOUT_SECONDS = 600.0
"""Default limit for scoring one rollout."""
_ANY_NUMBER = Places(0)


@contextmanager
def partial_scores() -> Iterator[None]:
    """Marks scores in this block as parts of the reward, so that they are not copied to steps yet."""
    token = _is_partial.set(True)
    try:
        yield
    finally:
        _is_partial.reset(token)


def set_advantages(states: Sequence[State]) -> None:
    """Sets each rollout's ``advantage`` to its reward minus the group's mean. Steps without an advantage get it."""
    rewards = [state["reward"] for state in states if state.get("reward") is not None]
    mean = math.fsum(rewards) / len(rewards) if rewards else 0.0
    for state in states:
        reward = state.get("reward")
        state["advantage"] = None if reward is None else reward - mean
        if not _is_partial.get():
            fill_steps(state)


def fill_steps(state: State) -> None:
    for step in state.get("trajectory") or ():
        for name in ("reward", "advantage"):
            if step.get(name) is None:
                step[name] = state.get(name)


class Rubric:
    """Scores rollouts with weighted reward functions; each weight is 1.0 by default.

    If a function raises, hangs or does not return a number, only that rollout fails: its ``error`` is set and its
    ``reward`` stays None. A rollout that already has an error is not scored. ``scoring_timeout_seconds`` limits the
    scoring of a rollout, a call of a group function, and a clean-up or teardown handler; None means no limit.

    Example:
        >>> import asyncio
        >>> from nightjar.core.rollout.state import State
        >>> def correct(completion, answer, parser):
        ...     return float(parser.parse_answer(completion) == answer)
        >>> state = State(input={"prompt": [], "answer": "4", "example_id": 0}, completion="4")
        >>> asyncio.run(Rubric([correct], [2.0]).score_rollout(state))
        >>> state["reward"], state["metrics"]
        (2.0, {'correct': 1.0})
    """

    never_waits: ClassVar[bool] = False
    """True for a rubric whose functions return at once, as counters do, and need neither a task nor a timer."""

    def __init__(
        self,
        funcs: Sequence[RewardFunc] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
    ) -> None:
        self.logger = logging.getLogger(f"{__name__}.{type(self).__name__}")
        self.parser = parser or Parser()
        self.class_objects: dict[str, Any] = {"parser": self.parser}
        self.scoring_timeout_seconds: float | None = REWARD_TIMEOUT_SECONDS
        self.score_object_providers: list[ScoreObjectProvider] = []
        self.group_score_object_providers: list[GroupScoreObjectProvider] = []
        self._cleanup_handlers: list[Callable[..., Any]] = []
        self._funcs = list(funcs or [])
        self._weights = list(weights or [1.0] * len(self._funcs))
        self._known_functions: list[RewardFunction] = []
        self._functions()

    @property
    def funcs(self) -> list[RewardFunc]:
        """The reward functions; the list may be changed or replaced."""
        return self._funcs

    @funcs.setter
    def funcs(self, funcs: Sequence[RewardFunc]) -> None:
        self._funcs = list(funcs)

    @property
    def weights(self) -> list[float]:
        """The weights of the functions."""
        return self._weights

    @weights.setter
    def weights(self, weights: Sequence[float]) -> None:
        self._weights = list(weights)

    @property
    def reward_weights(self) -> dict[str, Any]:
        """The weights by metric; in a group of environments, a dict for each environment.

        Metrics that a subclass adds to the rollouts itself are missing.
        """
        return {name: float(weight) for name, weight in zip(self.metric_names, self.weights, strict=True)}

    @property
    def has_group_rewards(self) -> bool:
        """Whether a function scores whole groups."""
        return any(function.is_group for function in self._functions())

    @property
    def has_rewards(self) -> bool:
        """Whether a reward can differ from 0, because a function has a weight or a subclass has its own scoring."""
        is_own = any(
            getattr(type(self), name) is not getattr(Rubric, name) for name in ("score_rollout", "score_group")
        )
        return is_own or any(self.weights)

    @property
    def has_advantages(self) -> bool:
        """Whether the rubric sets ``advantage`` itself; such subclasses return True."""
        return False

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Adds a reward function; a second function with the same name is recorded as ``name_2``."""
        self._funcs.append(func)
        self._weights.append(weight)
        self._functions()

    def add_metric(self, func: RewardFunc, weight: float = 0.0) -> None:
        """Adds a function whose score is recorded but does not count in the reward."""
        self.add_reward_func(func, weight)

    def add_class_object(self, name: str, obj: Any) -> None:
        """Makes ``obj`` available to reward functions under ``name``."""
        self.class_objects[name] = obj

    def add_score_object_provider(self, provider: ScoreObjectProvider) -> None:
        """Adds a function that takes a state and returns additional arguments of the reward functions, by name."""
        self.score_object_providers.append(provider)

    def add_group_score_object_provider(self, provider: GroupScoreObjectProvider) -> None:
        """Adds a function that takes a group's states and returns more arguments of the group functions, by name."""
        self.group_score_object_providers.append(provider)

    def add_cleanup_handler(self, handler: Callable[..., Any]) -> None:
        """Adds a function that runs after a rollout is scored, like the ``@cleanup`` methods."""
        self._cleanup_handlers.append(handler)

    def set_timeout_seconds(self, timeout_seconds: float | None) -> None:
        """Sets the limit for scoring one rollout."""
        self.scoring_timeout_seconds = timeout_seconds

    def score_objects(self, state: State) -> dict[str, Any]:
        """Returns the objects for the reward functions of one rollout."""
        objects = {**rollout_objects(state), **self.class_objects}
        for provider in self.score_object_providers:
            objects.update(provider(state))
        return objects

    def group_score_objects(self, states: Sequence[State]) -> dict[str, Any]:
        """Returns the objects for the group functions of these rollouts."""
        each = [self.score_objects(state) for state in states]
        objects = {**group_objects(states, each), **self.class_objects}
        for provider in self.group_score_object_providers:
            objects.update(provider(list(states)))
        return objects

    async def score_rollout(self, state: State) -> None:
        """Scores one rollout on its own, not as part of a group."""
        if self.has_group_rewards:
            raise ScoringError("A rubric with group reward functions cannot score a single rollout")
        await self.score_group([state])

    async def score_group(self, states: Sequence[State]) -> None:
        """Sets ``reward``, ``metrics`` and ``advantage`` of each rollout of one example.

        Functions are called in their order. Functions for single rollouts run concurrently for all rollouts.
        """
        functions = self._functions()
        if not _is_partial.get():
            noted_answers.set([])
        for state in states:
            state["metrics"] = {}
        for is_group, block in itertools.groupby(functions, lambda function: function.is_group):
            await (self._score_groups if is_group else self._score_singles)(list(block), states)
        for state in states:
            if state.get("error") is not None:
                state.update(metrics={}, reward=None)
                continue
            weighted = zip(functions, self._weights, strict=True)
            state["reward"] = math.fsum(weight * state["metrics"][each.name] for each, weight in weighted if weight)
        if not (self.has_advantages or _is_partial.get()):
            set_advantages(states)

    async def dummy_score_rollout(self, state: State) -> None:
        """Sets the reward to 0.0 (None if the rollout has an error) without calling a reward function."""
        state["reward"] = 0.0 if state.get("error") is None else None
        state["metrics"] = {}

    async def dummy_score_group(self, states: Sequence[State]) -> None:
        """Gives the rollouts of a group the reward 0.0 without calling a reward function."""
        for state in states:
            await self.dummy_score_rollout(state)

    @property
    def has_cleanup(self) -> bool:
        """Whether there is anything to run after a rollout is scored."""
        return self._has_own_cleanup or bool(self._cleanups())

    async def cleanup(self, state: State) -> None:
        """Runs all ``@cleanup`` methods and added handlers after a rollout is scored, even if some fail."""
        if handlers := self._cleanups():
            await run_all([partial(self._clean_up, each, state) for each in handlers], self.scoring_timeout_seconds)

    _usual_cleanup = cleanup

    @property
    def _has_own_cleanup(self) -> bool:
        """Whether ``cleanup`` was replaced, in a subclass, in this object or in the class itself."""
        return self.cleanup != self._usual_cleanup

    def _cleanups(self) -> list[Callable[..., Any]]:
        handlers = [*decorated_methods(self, "cleanup_priority"), *self._cleanup_handlers]
        if len(handlers) < 2:  # noqa: PLR2004 - there is nothing to sort
            return handlers
        return sorted(handlers, key=lambda handler: (-getattr(handler, "cleanup_priority", 0), function_name(handler)))

    async def _clean_up(self, handler: Callable[..., Any], state: State) -> None:
        await call_named(handler, **self.cleanup_objects(handler, state))

    def cleanup_objects(self, handler: Callable[..., Any], state: State) -> dict[str, Any]:
        """Returns the objects for a clean-up handler; computes those of the rollout only if the handler names any."""
        objects = {"state": state, **self.class_objects}
        return objects if takes_only(handler, objects) else {**objects, **self.score_objects(state)}

    async def teardown(self) -> None:
        """Runs the ``@teardown`` methods at the end of a run. Their parameters may name class objects."""
        handlers = decorated_methods(self, "teardown_priority")
        calls = [partial(call_named, handler, **self.class_objects) for handler in handlers]
        await run_all(calls, self.scoring_timeout_seconds)

    @property
    def metric_names(self) -> list[str]:
        """The names under which scores are recorded."""
        return [function.name for function in self._functions()]

    def _functions(self) -> list[RewardFunction]:
        """Returns the analysed functions; analyses them again if the list was changed from outside."""
        if len(self._weights) != len(self._funcs):
            raise ValueError(
                f"Number of weights ({len(self._weights)}) must match number of functions ({len(self._funcs)})"
            )
        known = self._known_functions
        if len(known) != len(self._funcs) or any(f.func is not g for f, g in zip(known, self._funcs, strict=True)):
            self._known_functions = known = [RewardFunction(func) for func in self._funcs]
            taken: set[str] = set()
            for function in known:
                name = distinct_name(function.name, taken)
                if name != function.name:
                    warn_of_renaming(function.name, name)
                function.name = name
                taken.add(name)
        return known

    async def _score_singles(self, functions: Sequence[RewardFunction], states: Sequence[State]) -> None:
        alive = [state for state in states if state.get("error") is None]
        if self.never_waits or len(alive) == 1:
            for state in alive:
                await self._score_single(functions, state)
        else:
            await asyncio.gather(*(self._score_single(functions, state) for state in alive))

    async def _score_single(self, functions: Sequence[RewardFunction], state: State) -> None:
        try:
            if self.never_waits:
                await self._call_all(functions, state)
            else:
                async with scoring_places.get(_ANY_NUMBER):
                    await within(self.scoring_timeout_seconds, self._call_all(functions, state))
        except BaseException as raised:  # noqa: BLE001 - reward functions are user code
            unscored = (function.name for function in functions if function.name not in state["metrics"])
            name = next(unscored, functions[-1].name)  # a thread that was given up may have just recorded the last
            state["error"] = _failure(name, user_error(raised))

    async def _call_all(self, functions: Sequence[RewardFunction], state: State) -> None:
        needs_all = not all(function.is_of_state for function in functions)
        objects = self.score_objects(state) if needs_all else {"state": state}
        await CallsInOrder(functions, objects, state["metrics"]).run()

    async def _score_groups(self, functions: Sequence[RewardFunction], states: Sequence[State]) -> None:
        for function in functions:
            alive = [state for state in states if state.get("error") is None]
            try:
                async with scoring_places.get(_ANY_NUMBER):
                    await within(self.scoring_timeout_seconds, self._score_group(function, alive))
            except BaseException as raised:  # noqa: BLE001 - reward functions are user code
                failure = _failure(function.name, user_error(raised))
                for state in alive:
                    state["error"] = failure

    async def _score_group(self, function: RewardFunction, states: Sequence[State]) -> None:
        if not states:
            return
        scores = list(await function.call(self.group_score_objects(states)))
        if len(scores) != len(states):
            raise ValueError(f"returned {len(scores)} scores for {len(states)} rollouts")
        for state, score in zip(states, scores, strict=True):
            state["metrics"][function.name] = finite_number(score)


def _failure(name: str, error: Exception) -> ScoringError:
    failure = ScoringError(f"Reward function {name!r}: {error or type(error).__name__}")
    failure.__cause__ = error
    return failure
