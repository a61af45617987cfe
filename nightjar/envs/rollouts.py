"""``EnvironmentRollouts``: an environment and a model as the engine drives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from nightjar.clients import Client
from nightjar.envs.environment import Environment
from nightjar.errors import ConfigError
from nightjar.rollout.state import RolloutInput, SamplingArgs, State
from nightjar.rollout.timing import RolloutTiming


class EnvironmentRollouts:
    """Attempts of one model at the examples of one environment.

    Args:
        env: the environment.
        client: where the model is.
        model: its name there.
        sampling_args: override the environment's, key by key.
        example: from an example_id and a rollout index to an input of one's own; the environment's examples unless
            given.

    Example:
        >>> from nightjar.clients import ClientConfig, resolve_client
        >>> from nightjar.envs import SingleTurnEnv
        >>> env = SingleTurnEnv(dataset=[{"question": "What is 2+2?", "answer": "4"}])
        >>> client = resolve_client(ClientConfig(api_base_url="http://localhost:8000/v1"))
        >>> rollouts = EnvironmentRollouts(env, client, "local", sampling_args={})
        >>> rollouts.input(0, rollout_index=2)["rollout_index"]
        2
    """

    def __init__(
        self,
        env: Environment,
        client: Client[Any, Any, Any, Any],
        model: str,
        sampling_args: SamplingArgs,
        example: Callable[[int, int], Mapping[str, Any]] | None = None,
    ) -> None:
        self._env = env
        self._client = client
        self._model = model
        self._sampling_args = sampling_args
        self._example = example or (lambda example_id, _: env.examples[example_id])

    def input(self, example_id: int, rollout_index: int) -> RolloutInput:
        """Returns a fresh input, which nothing else shares."""
        return cast("RolloutInput", {**self._example(example_id, rollout_index), "rollout_index": rollout_index})

    async def new_state(self, rollout_input: RolloutInput) -> State:
        """Returns a state in which nothing has happened yet."""
        return await self._env.init_state(rollout_input, self._client, self._model, self._sampling_args)

    async def attempt(self, rollout_input: RolloutInput) -> State:
        """Makes one attempt.

        Raises:
            ConfigError: the environment's own ``rollout`` returned no state.
        """
        state = await self._env.rollout(rollout_input, self._client, self._model, self._sampling_args)
        if not isinstance(state, State):
            raise ConfigError(f"rollout() of {type(self._env).__name__} returned {type(state).__name__}, not a State")
        if isinstance(timing := state.get("timing"), RolloutTiming):
            timing.end_generation()
        return state
