"""``EnvGroup`` runs each example in the environment that its ``info["env_id"]`` names.

In nested groups, ``env_id`` is a list of names, outermost first.
"""

# ruff: noqa: A002 - environments know the argument ``input`` by this name
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import orjson

from nightjar.clients.client import AnyClient
from nightjar.core.calling.decorators import teardown
from nightjar.core.messages import AssistantMessage, Messages
from nightjar.core.rollout.state import RolloutInput, SamplingArgs, State
from nightjar.environments.data import Examples
from nightjar.environments.environment import Environment
from nightjar.environments.multiturn import SingleTurnEnv
from nightjar.environments.rollouts import tear_down
from nightjar.environments.rubrics import Rubric
from nightjar.environments.rubrics.calls import run_all

KEY = "env_id"


class EnvGroupRubric(Rubric):
    """Scores each rollout with the rubric of its environment; a metric's mean covers only rollouts with that metric."""

    def __init__(self, env_map: Mapping[str, Environment]) -> None:
        super().__init__()
        self.env_map = env_map

    @property
    def metric_names(self) -> list[str]:
        """The sorted names of all metrics; verifiers calls them ``all_reward_names``."""
        return sorted({name for env in self.env_map.values() for name in env.rubric.metric_names})

    all_reward_names = metric_names

    @property
    def reward_weights(self) -> dict[str, Any]:
        return {name: env.rubric.reward_weights for name, env in self.env_map.items()}

    @property
    def has_group_rewards(self) -> bool:
        return any(env.rubric.has_group_rewards for env in self.env_map.values())

    def set_timeout_seconds(self, timeout_seconds: float | None) -> None:
        super().set_timeout_seconds(timeout_seconds)
        for env in self.env_map.values():
            env.rubric.set_timeout_seconds(timeout_seconds)

    async def score_rollout(self, state: State) -> None:
        """Scores one rollout on its own; metrics that only other environments have are set to 0.0."""
        await super().score_rollout(state)
        state["metrics"] = dict.fromkeys(self.metric_names, 0.0) | state["metrics"]

    async def score_group(self, states: Sequence[State]) -> None:
        """Scores rollouts. A rollout of an unknown environment gets the reward 0.0, with a warning."""
        parts: dict[str | None, list[State]] = defaultdict(list)
        for state in states:
            parts[self._name_of(state)].append(state)
        for name, part in parts.items():
            if name is None:
                self.logger.warning("No environment for info %r: reward 0.0", part[0].get("info"))
                await self.dummy_score_group(part)
            else:
                with _as_child_info(part):
                    await self.env_map[name].rubric.score_group(part)

    async def cleanup(self, state: State) -> None:
        await run_all([partial(self._clean_up_inside, state), partial(super().cleanup, state)])

    async def _clean_up_inside(self, state: State) -> None:
        name = self._name_of(state)
        if name is not None:
            with _as_child_info([state]):
                await self.env_map[name].rubric.cleanup(state)

    def _name_of(self, state: State) -> str | None:
        route = route_of(state.get("info"))
        name = route[0] if route else next(iter(self.env_map)) if len(self.env_map) == 1 else None
        return name if name in self.env_map else None


@contextmanager
def _as_child_info(states: Sequence[State]) -> Iterator[None]:
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
    """Returns the names that lead to an example's environment, outermost first; an empty list if no name is given."""
    value = _as_dict(info).get(KEY) or []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence):
        raise ValueError(f"info['env_id'] must be a text or a list of texts, found {value!r}")  # noqa: TRY004 - a row of the dataset is wrong
    return [str(name) for name in value]


def joined_info(info: Any, route: Sequence[str]) -> dict[str, Any]:
    return {**_as_dict(info), KEY: route[0] if len(route) == 1 else list(route)}


def child_info(info: Any, route: Sequence[str]) -> dict[str, Any]:
    inner = list(route[1:])
    own = {key: value for key, value in _as_dict(info).items() if key != KEY}
    return joined_info(own, inner) if inner else own


def _as_dict(info: Any) -> dict[str, Any]:
    if isinstance(info, str):
        info = orjson.loads(info)
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise ValueError(  # noqa: TRY004 - a row of the dataset is wrong
            f"The info of an example in a group must be a dict, found {info!r}"
        )
    return dict(info)


class EnvGroup(Environment):
    """Runs each example in its own environment; ``names`` is an alias of ``env_names``.

    Example:
        >>> sums = SingleTurnEnv(dataset=[{"question": "2+2", "answer": "4"}])
        >>> words = SingleTurnEnv(dataset=[{"question": "Say hi", "answer": "hi"}])
        >>> group = EnvGroup([sums, words], env_names=["sums", "words"])
        >>> [row["info"]["env_id"] for row in group.get_dataset()]
        ['sums', 'words']
    """

    def __init__(
        self,
        envs: Sequence[Environment],
        env_names: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if not envs:
            raise ValueError("EnvGroup requires at least one environment")
        self.envs = list(envs)
        self.env_names = list(env_names or names or (f"env_{number}" for number in range(len(self.envs))))
        if len(set(self.env_names)) != len(self.envs):
            raise ValueError(
                f"Number of env_names must match number of envs, each name once: found {self.env_names} "
                f"for {len(self.envs)} environments"
            )
        self.env_map = dict(zip(self.env_names, self.envs, strict=True))
        train = {name: env.train_examples for name, env in self.env_map.items() if env.train_examples is not None}
        has_eval = any(env.has_eval_examples for env in self.envs)
        super().__init__(
            dataset=_JoinedRows(train) if train else None,
            eval_dataset=_JoinedRows({name: env.examples for name, env in self.env_map.items()}) if has_eval else None,
            rubric=EnvGroupRubric(self.env_map),
            **kwargs,
        )

    def get_env_for_name(self, name: str) -> Environment:
        """Returns the environment with this name. Raises ``ValueError`` if the name is unknown."""
        if name not in self.env_map:
            raise ValueError(
                f"No environment found for info['env_id'] {name!r}. Choose one of: {', '.join(self.env_names)}"
            )
        return self.env_map[name]

    get_env_for_task = get_env_for_name

    def set_kwargs(self, **kwargs: Any) -> None:
        """Sets attributes. If the group lacks an attribute, it is set in all environments that have it."""
        for name, value in kwargs.items():
            knowing = [] if hasattr(self, name) else [env for env in self.envs if _has(env, name)]
            for env in knowing:
                env.set_kwargs(**{name: value})
            if not knowing:
                super().set_kwargs(**{name: value})

    def set_system_prompt(self, system_prompt: str | None) -> None:
        super().set_system_prompt(system_prompt)
        self._set_in_all(system_prompt=system_prompt)

    def set_few_shot(self, few_shot: Messages | None) -> None:
        super().set_few_shot(few_shot)
        self._set_in_all(few_shot=few_shot)

    def set_sampling_args(self, sampling_args: SamplingArgs) -> None:
        """Sets sampling arguments that override the environments' defaults. A run's own arguments override both."""
        self.own_sampling_args = dict(sampling_args)
        self.sampling_args = {**self.sampling_args, **sampling_args}

    def set_max_seq_len(self, max_seq_len: int | None) -> None:
        super().set_max_seq_len(max_seq_len)
        self._set_in_all(max_seq_len=max_seq_len)

    def set_score_rollouts(self, score_rollouts: bool) -> None:
        super().set_score_rollouts(score_rollouts)
        self._set_in_all(score_rollouts=score_rollouts)

    def set_max_sandboxes(self, max_sandboxes: int | None) -> None:
        """Sets the maximum number of sandboxes of each environment."""
        self._set_in_all(max_sandboxes=max_sandboxes)

    def _set_in_all(self, **setting: Any) -> None:
        for env in self.envs:
            env.set_kwargs(**setting)

    async def init_state(
        self, input: RolloutInput, client: AnyClient | Any, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        env, child, route, merged = self._child(input, sampling_args)
        return _with_route(await env.init_state(child, client, model, merged), route)

    async def rollout(
        self, input: RolloutInput, client: AnyClient, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        env, child, route, merged = self._child(input, sampling_args)
        return _with_route(await env.rollout(child, client, model, merged), route)

    def reference_replies(self, example: Mapping[str, Any]) -> list[AssistantMessage]:
        env, child, *_ = self._child(cast("RolloutInput", example), None)
        return env.reference_replies(child)

    @teardown
    async def tear_down_envs(self) -> None:
        """Tears all environments down."""
        for env in self.envs:
            await tear_down(env)

    def _child(
        self, rollout_input: RolloutInput, sampling_args: SamplingArgs | None
    ) -> tuple[Environment, RolloutInput, Sequence[str], SamplingArgs]:
        info = rollout_input.get("info")
        route = route_of(info) or (self.env_names if len(self.envs) == 1 else [])
        if not route:
            raise ValueError(f"The input has no info['env_id']. Choose one of: {', '.join(self.env_names)}")
        child = cast("RolloutInput", {**rollout_input, "info": child_info(info, route)})
        return self.get_env_for_name(route[0]), child, route, {**self.own_sampling_args, **(sampling_args or {})}


def _has(env: Environment, name: str) -> bool:
    if name == "max_turns" and isinstance(env, SingleTurnEnv):
        return False  # it always has one turn
    return hasattr(env, name) or (isinstance(env, EnvGroup) and any(_has(child, name) for child in env.envs))


def _with_route(state: State, route: Sequence[str]) -> State:
    """Restores the route in a child's state, without marking the input as changed."""
    if not (isinstance(state, State) and isinstance(state.get("input"), dict)):
        return state  # broken by user code: the engine reports it
    was_changed = "info" in state.changed_input()
    state["input"]["info"] = joined_info(state["input"].get("info"), route)
    if not was_changed:
        state.remember_input("info")
    return state


class _JoinedRows(Sequence[dict[str, Any]]):
    def __init__(self, parts: Mapping[str, Examples]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def __getitem__(self, position: Any) -> Any:
        left = position
        for name, examples in self._parts.items():
            if left < len(examples):
                row = examples[left]
                row.pop("example_id")
                return {**row, "info": joined_info(row.get("info"), [name, *route_of(row.get("info"))])}
            left -= len(examples)
        raise IndexError(position)
