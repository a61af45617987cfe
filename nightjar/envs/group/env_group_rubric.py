"""``EnvGroupRubric``: scores each rollout with the rubric of its environment, which ``info["env_id"]`` names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from nightjar.rollout.state import State
from nightjar.rubrics import Rubric
from nightjar.rubrics.handlers import run_all

if TYPE_CHECKING:
    from nightjar.envs.environment import Environment


KEY = "env_id"


class EnvGroupRubric(Rubric):
    """Scores each rollout with the rubric of the environment that its ``info["env_id"]`` names.

    A rollout has the metrics of its environment, so that a mean is over the rollouts that a metric is about.
    """

    def __init__(self, env_map: Mapping[str, Environment]) -> None:
        super().__init__()
        self.env_map = env_map

    @property
    def metric_names(self) -> list[str]:
        """The names of all metrics, sorted; ``all_reward_names``, as verifiers has it, is the same."""
        return sorted({name for env in self.env_map.values() for name in env.rubric.metric_names})

    all_reward_names = metric_names

    @property
    def has_group_rewards(self) -> bool:
        """Says whether a function of any environment scores whole groups."""
        return any(env.rubric.has_group_rewards for env in self.env_map.values())

    def set_timeout_seconds(self, timeout_seconds: float | None) -> None:
        """Sets the limit for scoring one rollout, in all environments."""
        super().set_timeout_seconds(timeout_seconds)
        for env in self.env_map.values():
            env.rubric.set_timeout_seconds(timeout_seconds)

    async def score_rollout(self, state: State) -> None:
        """Scores one rollout by itself, and gives it the metrics of all environments, 0.0 for those of the others."""
        await super().score_rollout(state)
        state["metrics"] = dict.fromkeys(self.metric_names, 0.0) | state["metrics"]

    async def score_group(self, states: Sequence[State]) -> None:
        """Scores rollouts; one that names no environment of the group gets the reward 0.0, with a warning."""
        parts: dict[str | None, list[State]] = defaultdict(list)
        for state in states:
            parts[self._name_of(state)].append(state)
        for name, part in parts.items():
            if name is None:
                self.logger.warning("No environment for info %r: reward 0.0", part[0].get("info"))
                await self.dummy_score_group(part)
            else:
                with _inside(part):
                    await self.env_map[name].rubric.score_group(part)

    async def cleanup(self, state: State) -> None:
        """Runs the clean-ups of the environment's rubric, and those added to this one."""
        await run_all([partial(self._clean_up_inside, state), partial(super().cleanup, state)])

    async def _clean_up_inside(self, state: State) -> None:
        name = self._name_of(state)
        if name is not None:
            with _inside([state]):
                await self.env_map[name].rubric.cleanup(state)

    def _name_of(self, state: State) -> str | None:
        route = route_of(state.get("info"))
        name = route[0] if route else next(iter(self.env_map)) if len(self.env_map) == 1 else None
        return name if name in self.env_map else None


@contextmanager
def _inside(states: Sequence[State]) -> Iterator[None]:
    """Lets the states have, for the block, the info that the environment itself knows."""
    routed = [(state, route_of(state.get("info"))) for state in states]
    for state, route in routed:
        state["input"]["info"] = child_info(state.get("info"), route)
    try:
        yield
    finally:
        for state, route in routed:
            if route:
                state["input"]["info"] = joined_info(state["input"]["info"], route)


def route_of(info: Any) -> list[str]:
    """Returns the names on the way to an example's environment, the outermost first; empty where there are none."""
    value = _as_dict(info).get(KEY) or []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence):
        raise ValueError(f"info['env_id'] must be a text or a list of texts, found {value!r}")  # noqa: TRY004 - see below
    return [str(name) for name in value]


def joined_info(info: Any, route: Sequence[str]) -> dict[str, Any]:
    """Returns an example's info with a route."""
    return {**_as_dict(info), KEY: route[0] if len(route) == 1 else list(route)}


def child_info(info: Any, route: Sequence[str]) -> dict[str, Any]:
    """Returns an example's info as the environment at the first name of its route knows it."""
    inner = list(route[1:])
    own = {key: value for key, value in _as_dict(info).items() if key != KEY}
    return joined_info(own, inner) if inner else own


def _as_dict(info: Any) -> dict[str, Any]:
    if isinstance(info, str):
        info = orjson.loads(info)
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise ValueError(  # noqa: TRY004 - of its kind here
            f"The info of an example in a group must be a dict, found {info!r}"
        )
    return dict(info)
