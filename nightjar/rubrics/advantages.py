"""Advantages: how much better than its group a rollout is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from nightjar.rollout.state import State

_is_partial: ContextVar[bool] = ContextVar("is_partial", default=False)


@contextmanager
def partial_scores() -> Iterator[None]:
    """Marks what is scored in this block as a part of the reward, with which steps must not be filled yet."""
    token = _is_partial.set(True)
    try:
        yield
    finally:
        _is_partial.reset(token)


def set_advantages(states: Sequence[State]) -> None:
    """Sets each rollout's ``advantage``: its reward minus the mean reward of the group's scored rollouts.

    Steps of the trajectory that have no reward or advantage of their own get the rollout's.

    Example:
        >>> states = [State(reward=1.0), State(reward=0.0)]
        >>> set_advantages(states)
        >>> [state["advantage"] for state in states]
        [0.5, -0.5]
    """
    rewards = [state["reward"] for state in states if state.get("reward") is not None]
    mean = math.fsum(rewards) / len(rewards) if rewards else 0.0
    for state in states:
        reward = state.get("reward")
        state["advantage"] = None if reward is None else reward - mean
        if not _is_partial.get():
            fill_steps(state)


def fill_steps(state: State) -> None:
    """Gives the rollout's reward and advantage to the steps that have none."""
    for step in state.get("trajectory") or ():
        for name in ("reward", "advantage"):
            if step.get(name) is None:
                step[name] = state.get(name)
