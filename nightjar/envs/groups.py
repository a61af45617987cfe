"""``run_group`` and ``run_rollout``: a few rollouts whose states somebody wants, without a run around them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

from nightjar.clients import Client, ClientConfig, resolve_client
from nightjar.engine import Engine, EngineOptions, Group, RetryPolicy, run_groups
from nightjar.envs.rollouts import EnvironmentRollouts
from nightjar.envs.teardown import tear_down_at_exit
from nightjar.rollout.state import RolloutInput, SamplingArgs, State

if TYPE_CHECKING:
    from nightjar.envs.environment import Environment


async def run_states(
    env: Environment,
    inputs: Sequence[RolloutInput],
    client: Client[Any, Any, Any, Any] | ClientConfig,
    model: str,
    sampling_args: SamplingArgs,
    max_retries: int,
) -> list[State]:
    """Generates and scores the rollouts of one group, and returns their states in the order of the inputs."""
    if not inputs:
        return []
    tear_down_at_exit(env)
    asked = resolve_client(client)
    states = _States()
    rollouts = EnvironmentRollouts(
        env, asked, model, sampling_args, lambda _, index: cast("dict[str, Any]", deepcopy(inputs[index]))
    )
    options = EngineOptions(
        max_generating=-1, max_scoring=-1, score_rollouts=env.score_rollouts, retry=RetryPolicy(max_retries)
    )
    try:
        group = Group(inputs[0]["example_id"], tuple(range(len(inputs))))
        await run_groups(Engine(rollouts=rollouts, rubric=env.rubric, recorder=states, options=options), [group])
    finally:
        if isinstance(client, ClientConfig):
            await asked.close()
    return states.scored_states


async def run_single(env: Environment, *args: Any, sem: Any = None, **kwargs: Any) -> State:
    """Generates and scores one rollout; a semaphore as the first argument is held meanwhile."""
    if args and hasattr(args[0], "acquire"):
        sem, *args = args  # type: ignore[assignment]
    names = ("input", "client", "model", "sampling_args", "max_retries")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    held: AbstractAsyncContextManager[Any] = sem or nullcontext()
    async with held:
        [state] = await run_states(
            env, [given["input"]], given["client"], given["model"],
            given.get("sampling_args") or {}, given.get("max_retries", 0),
        )  # fmt: skip
    return state


class _States:
    """A recorder that keeps the states of one group."""

    def __init__(self) -> None:
        self.scored_states: list[State] = []

    def attempted(self, state: State) -> None:
        """Nothing is kept of an attempt but its state."""

    def scored(self, states: Sequence[State]) -> Sequence[dict[str, Any]]:
        self.scored_states.extend(states)
        return []

    def restore(self, state: State) -> State:
        return state
