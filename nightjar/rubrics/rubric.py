"""``Rubric``: reward functions and their weights.

A reward function names what it wants as parameters: ``prompt``, ``completion``, ``answer``, ``state``, ``info``,
``task``, ``parser``, a class object, or any further column of the dataset. It returns a number. With a
plural parameter (``states``, ``completions``, …) it gets the whole group and returns a list.

Example::

    def correct(completion, answer, parser) -> float:
        return float(parser.parse_answer(completion) == answer)

    rubric = Rubric(funcs=[correct], weights=[1.0])
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Container, Sequence
from typing import Any

from nightjar.cancellation import user_error
from nightjar.decorators import decorated_methods
from nightjar.errors import ScoringError
from nightjar.parsers import Parser
from nightjar.rubrics.calling import RewardFunction
from nightjar.state import RewardFunc, State

logger = logging.getLogger(__name__)

REWARD_TIMEOUT_SECONDS = 600.0
"""How long the scoring of a rollout may take, unless a rubric says otherwise."""


class Rubric:
    """Scores rollouts with weighted reward functions.

    A function that raises, hangs or returns no number costs that rollout, not the run: its ``error`` is set
    and its ``reward`` stays None. A rollout that already has an error is not scored.

    Args:
        funcs: reward functions, called in this order.
        weights: one a function, 1.0 each unless given.
        parser: given to reward functions as ``parser``.

    Attributes:
        timeout_seconds: limit for scoring one rollout, or for one call of a group function; None for no limit.

    Raises:
        ValueError: there are not as many weights as functions.
    """

    def __init__(
        self,
        funcs: Sequence[RewardFunc] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
    ) -> None:
        functions = list(funcs or [])
        chosen = [1.0] * len(functions) if weights is None else list(weights)
        if len(chosen) != len(functions):
            raise ValueError(f"Number of weights ({len(chosen)}) must match number of functions ({len(functions)})")
        self.parser = parser or Parser()
        self.class_objects: dict[str, Any] = {"parser": self.parser}
        self.timeout_seconds: float | None = REWARD_TIMEOUT_SECONDS
        self._functions: list[RewardFunction] = []
        for func, weight in zip(functions, chosen, strict=True):
            self.add_reward_func(func, weight)

    @property
    def funcs(self) -> list[RewardFunc]:
        """The reward functions."""
        return [function.func for function in self._functions]

    @property
    def weights(self) -> list[float]:
        """Their weights."""
        return [function.weight for function in self._functions]

    @property
    def has_group_rewards(self) -> bool:
        """Says whether a function scores whole groups."""
        return any(function.is_group for function in self._functions)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Adds a reward function. A second one of the same name is recorded as ``name_2``."""
        function = RewardFunction(func, weight)
        name = distinct_name(function.name, [other.name for other in self._functions])
        if name != function.name:
            logger.warning("Two reward functions are called %r: one is recorded as %r", function.name, name)
        function.name = name
        self._functions.append(function)

    def add_metric(self, func: RewardFunc, weight: float = 0.0) -> None:
        """Adds a function whose score is recorded and does not count in the reward."""
        self.add_reward_func(func, weight)

    def add_class_object(self, name: str, obj: Any) -> None:
        """Makes ``obj`` available to reward functions under ``name``."""
        self.class_objects[name] = obj

    def set_timeout_seconds(self, timeout_seconds: float | None) -> None:
        """Sets the limit for scoring one rollout."""
        self.timeout_seconds = timeout_seconds

    async def score_rollout(self, state: State) -> None:
        """Scores one rollout by itself.

        Raises:
            ScoringError: the rubric has group functions, which need the whole group.
        """
        if self.has_group_rewards:
            raise ScoringError("A rubric with group reward functions cannot score a single rollout")
        await self.score_group([state])

    async def score_group(self, states: Sequence[State]) -> None:
        """Scores the rollouts of one example: sets ``reward``, ``metrics`` and ``advantage`` of each.

        Functions are called in their order. Those for single rollouts run side by side for all rollouts.
        """
        scored = [state for state in states if state.get("error") is None]
        for state in scored:
            state["metrics"] = {}
        for is_group, block in itertools.groupby(self._functions, lambda function: function.is_group):
            await (self._score_groups if is_group else self._score_singles)(list(block), scored)
        for state in scored:
            failed = state["error"] is not None
            state["reward"] = None if failed else self._weighted(state["metrics"])
            if failed:
                state["metrics"] = {}
        set_advantages(states)

    def _weighted(self, metrics: dict[str, float]) -> float:
        return math.fsum(f.weight * metrics[f.name] for f in self._functions if f.weight)

    async def _score_singles(self, functions: Sequence[RewardFunction], states: Sequence[State]) -> None:
        alive = [state for state in states if state["error"] is None]
        if len(alive) == 1:
            await self._score_single(functions, alive[0])
        else:
            await asyncio.gather(*(self._score_single(functions, state) for state in alive))

    async def _score_single(self, functions: Sequence[RewardFunction], state: State) -> None:
        objects, metrics, name = self._objects(state), state["metrics"], ""
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                for function in functions:
                    name = function.name
                    metrics[name] = _number(await function.call(objects))
        except BaseException as raised:  # noqa: BLE001 - reward functions are user code
            state["error"] = self._failure(name, user_error(raised), limit)

    async def _score_groups(self, functions: Sequence[RewardFunction], states: Sequence[State]) -> None:
        for function in functions:
            alive = [state for state in states if state["error"] is None]
            limit = asyncio.timeout(self.timeout_seconds)
            try:
                async with limit:
                    await self._score_group(function, alive)
            except BaseException as raised:  # noqa: BLE001 - reward functions are user code
                failure = self._failure(function.name, user_error(raised), limit)
                for state in alive:
                    state["error"] = failure

    async def _score_group(self, function: RewardFunction, states: Sequence[State]) -> None:
        if not states:
            return
        scores = list(await function.call(self._group_objects(states)))
        if len(scores) != len(states):
            raise ValueError(f"returned {len(scores)} scores for {len(states)} rollouts")
        for state, score in zip(states, scores, strict=True):
            state["metrics"][function.name] = _number(score)

    def _failure(self, name: str, error: Exception, limit: asyncio.Timeout) -> ScoringError:
        is_late = isinstance(error, TimeoutError) and limit.expired()
        reason = f"took longer than {self.timeout_seconds} s" if is_late else error
        failure = ScoringError(f"Reward function {name!r}: {reason or type(error).__name__}")
        failure.__cause__ = error
        return failure

    def _objects(self, state: State) -> dict[str, Any]:
        columns = state["input"]
        return {
            **columns,
            "prompt": state.get("prompt"),
            "completion": state.get("completion"),
            "answer": columns.get("answer", ""),
            "info": columns.get("info", {}),
            "task": columns.get("task", ""),
            "state": state,
            **self.class_objects,
        }

    def _group_objects(self, states: Sequence[State]) -> dict[str, Any]:
        each = [self._objects(state) for state in states]
        plural = {
            f"{name}s": [objects[name] for objects in each]
            for name in ("prompt", "completion", "answer", "info", "task", "state")
        }
        columns = {
            name: [objects.get(name) for objects in each] for name in states[0]["input"] if f"{name}s" not in plural
        }
        return {**columns, **plural, **self.class_objects}

    async def cleanup(self, state: State) -> None:
        """Runs the rubric's ``@cleanup`` methods after a rollout is scored."""
        for handler in decorated_methods(self, "is_cleanup"):
            await handler(state)

    async def teardown(self) -> None:
        """Runs the rubric's ``@teardown`` methods at the end of a run."""
        for handler in decorated_methods(self, "is_teardown"):
            await handler()


def set_advantages(states: Sequence[State]) -> None:
    """Sets each rollout's ``advantage``: its reward minus the mean reward of the group's scored rollouts."""
    rewards = [state["reward"] for state in states if state.get("reward") is not None]
    mean = math.fsum(rewards) / len(rewards) if rewards else 0.0
    for state in states:
        reward = state.get("reward")
        state["advantage"] = None if reward is None else reward - mean


def distinct_name(name: str, taken: Container[str]) -> str:
    """Returns ``name``, or ``name_2``, ``name_3``, … where it is taken."""
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def _number(score: Any) -> float:
    number = float(score)
    if not math.isfinite(number):
        raise ValueError(f"returned {number}, which is not a finite number")
    return number
