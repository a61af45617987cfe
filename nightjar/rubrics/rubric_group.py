"""``RubricGroup``: several rubrics as one."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from nightjar.rubrics.rubric import Rubric, distinct_name, set_advantages
from nightjar.state import RewardFunc, State

logger = logging.getLogger(__name__)


class RubricGroup(Rubric):
    """Scores with several rubrics, one after another: rewards are added, metrics put side by side.

    Args:
        rubrics: at least one.

    Raises:
        ValueError: the list is empty.
    """

    def __init__(self, rubrics: Sequence[Rubric]) -> None:
        if not rubrics:
            raise ValueError("RubricGroup must have at least one rubric")
        super().__init__(parser=rubrics[0].parser)
        self.rubrics = list(rubrics)
        self._renamed: set[str] = set()

    @property
    def funcs(self) -> list[RewardFunc]:
        """The reward functions of all rubrics."""
        return [func for rubric in self.rubrics for func in rubric.funcs]

    @property
    def weights(self) -> list[float]:
        """The weights of all rubrics' functions."""
        return [weight for rubric in self.rubrics for weight in rubric.weights]

    @property
    def has_group_rewards(self) -> bool:
        """Says whether a function of any rubric scores whole groups."""
        return any(rubric.has_group_rewards for rubric in self.rubrics)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Adds a reward function to the first rubric."""
        self.rubrics[0].add_reward_func(func, weight)

    def add_class_object(self, name: str, obj: Any) -> None:
        """Makes ``obj`` available to the reward functions of all rubrics."""
        for rubric in self.rubrics:
            rubric.add_class_object(name, obj)

    def set_timeout_seconds(self, timeout_seconds: float | None) -> None:
        """Sets the limit for scoring one rollout in each rubric."""
        for rubric in self.rubrics:
            rubric.set_timeout_seconds(timeout_seconds)

    async def score_group(self, states: Sequence[State]) -> None:
        """Scores a group with each rubric in turn; what one of them cannot score has no reward."""
        scored = [state for state in states if state.get("error") is None]
        rewards: list[list[float]] = [[] for _ in scored]
        metrics: list[dict[str, float]] = [{} for _ in scored]
        for rubric in self.rubrics:
            await rubric.score_group(scored)
            for position, state in enumerate(scored):
                if state["error"] is None:
                    rewards[position].append(state["reward"] or 0.0)
                    for name, score in state["metrics"].items():
                        metrics[position][self._distinct(name, metrics[position])] = score
        for state, parts, found in zip(scored, rewards, metrics, strict=True):
            failed = state["error"] is not None
            state["reward"] = None if failed else math.fsum(parts)
            state["metrics"] = {} if failed else found
        set_advantages(states)

    def _distinct(self, name: str, taken: dict[str, float]) -> str:
        distinct = distinct_name(name, taken)
        if distinct != name and distinct not in self._renamed:
            self._renamed.add(distinct)
            logger.warning("Two reward functions are called %r: one is recorded as %r", name, distinct)
        return distinct

    async def cleanup(self, state: State) -> None:
        """Runs every rubric's ``@cleanup`` methods."""
        for rubric in self.rubrics:
            await rubric.cleanup(state)

    async def teardown(self) -> None:
        """Runs every rubric's ``@teardown`` methods."""
        for rubric in self.rubrics:
            await rubric.teardown()
