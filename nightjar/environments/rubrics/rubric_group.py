"""``RubricGroup`` combines several rubrics into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from nightjar.core.rollout.state import RewardFunc, State
from nightjar.environments.parsers import Parser, noted_answers
from nightjar.environments.rubrics.calls import distinct_name, run_all, warn_of_renaming
from nightjar.environments.rubrics.rubric import (
    GroupScoreObjectProvider,
    Rubric,
    ScoreObjectProvider,
    fill_steps,
    partial_scores,
    set_advantages,
)


class RubricGroup(Rubric):
    """Scores with several rubrics in order: rewards are added, and metrics are combined.

    Example:
        >>> import asyncio
        >>> from nightjar.core.rollout.state import State
        >>> def good(completion):
        ...     return 1.0
        >>> def fair(completion):
        ...     return 0.5
        >>> state = State(input={"prompt": [], "example_id": 0}, completion="yes")
        >>> asyncio.run(RubricGroup([Rubric([good]), Rubric([fair])]).score_rollout(state))
        >>> state["reward"], state["metrics"]
        (1.5, {'good': 1.0, 'fair': 0.5})
    """

    def __init__(self, rubrics: Sequence[Rubric], parser: Parser | None = None) -> None:
        if not rubrics:
            raise ValueError("RubricGroup must have at least one rubric")
        super().__init__(parser=parser or rubrics[0].parser)
        self.rubrics = list(rubrics)
        self._renamed: set[str] = set()

    @property  # type: ignore[misc]  # read-only: they belong to the rubrics
    def funcs(self) -> list[RewardFunc]:
        return [func for rubric in self.rubrics for func in rubric.funcs]

    @property  # type: ignore[misc]  # read-only: they belong to the rubrics
    def weights(self) -> list[float]:
        return [weight for rubric in self.rubrics for weight in rubric.weights]

    @property
    def reward_weights(self) -> dict[str, Any]:
        weights: dict[str, Any] = {}
        for rubric in self.rubrics:
            for name, weight in rubric.reward_weights.items():
                weights[distinct_name(name, weights)] = weight
        return weights

    @property
    def has_group_rewards(self) -> bool:
        return any(rubric.has_group_rewards for rubric in self.rubrics)

    @property
    def has_rewards(self) -> bool:
        return any(rubric.has_rewards for rubric in self.rubrics)

    @property
    def has_advantages(self) -> bool:
        return any(rubric.has_advantages for rubric in self.rubrics)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        self.rubrics[0].add_reward_func(func, weight)
        self.logger.warning("A reward function added to a RubricGroup goes to its first rubric")

    def add_metric(self, func: RewardFunc, weight: float = 0.0) -> None:
        self.rubrics[0].add_metric(func, weight)
        self.logger.warning("A metric added to a RubricGroup goes to its first rubric")

    def add_class_object(self, name: str, obj: Any) -> None:
        super().add_class_object(name, obj)
        for rubric in self.rubrics:
            rubric.add_class_object(name, obj)

    def add_score_object_provider(self, provider: ScoreObjectProvider) -> None:
        super().add_score_object_provider(provider)
        for rubric in self.rubrics:
            rubric.add_score_object_provider(provider)

    def add_group_score_object_provider(self, provider: GroupScoreObjectProvider) -> None:
        super().add_group_score_object_provider(provider)
        for rubric in self.rubrics:
            rubric.add_group_score_object_provider(provider)

    def set_timeout_seconds(self, timeout_seconds: float | None) -> None:
        super().set_timeout_seconds(timeout_seconds)
        for rubric in self.rubrics:
            rubric.set_timeout_seconds(timeout_seconds)

    async def score_group(self, states: Sequence[State]) -> None:
        """Scores a group with each rubric in order. If a rubric cannot score a rollout, the rollout has no reward."""
        noted_answers.set([])
        scored = [state for state in states if state.get("error") is None]
        rewards: list[list[float]] = [[] for _ in scored]
        metrics: list[dict[str, float]] = [{} for _ in scored]
        advantages: list[float | None] = [None for _ in scored]
        with partial_scores():
            for rubric in self.rubrics:
                await rubric.score_group(scored)
                for state, parts, found in zip(scored, rewards, metrics, strict=True):
                    if state.get("error") is None:
                        parts.append(state["reward"] or 0.0)
                        self._add_metrics(state["metrics"], found)
                if rubric.has_advantages:
                    advantages = [state.get("advantage") for state in scored]
        for state in states:
            state.update(reward=None, metrics={}, advantage=None)
        for state, parts, found in zip(scored, rewards, metrics, strict=True):
            if state.get("error") is None:
                state.update(reward=math.fsum(parts), metrics=found)
        self._set_advantages(states, scored, advantages)

    def _set_advantages(
        self, states: Sequence[State], scored: Sequence[State], advantages: Sequence[float | None]
    ) -> None:
        if not self.has_advantages:
            set_advantages(states)
            return
        for state, advantage in zip(scored, advantages, strict=True):
            state["advantage"] = advantage
            fill_steps(state)

    def _add_metrics(self, found: dict[str, float], metrics: dict[str, float]) -> None:
        for name, score in found.items():
            distinct = distinct_name(name, metrics)
            if distinct != name and distinct not in self._renamed:
                self._renamed.add(distinct)
                warn_of_renaming(name, distinct)
            metrics[distinct] = score

    @property
    def has_cleanup(self) -> bool:
        return super().has_cleanup or any(rubric.has_cleanup for rubric in self.rubrics)

    async def cleanup(self, state: State) -> None:
        cleaning = [rubric.cleanup for rubric in self.rubrics if rubric.has_cleanup]
        if not cleaning:
            await super().cleanup(state)
        else:
            await run_all(partial(clean_up, state) for clean_up in (super().cleanup, *cleaning))

    _usual_cleanup = cleanup

    async def teardown(self) -> None:
        await run_all([super().teardown, *(rubric.teardown for rubric in self.rubrics)])

    @property
    def metric_names(self) -> list[str]:
        return [name for rubric in self.rubrics for name in rubric.metric_names]
