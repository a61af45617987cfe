"""``EnvironmentRollouts``: an environment and a model as the engine drives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from nightjar.clients import Client
from nightjar.data import Examples
from nightjar.engine import Plan
from nightjar.errors import ConfigError
from nightjar.rollout.state import RolloutInput, SamplingArgs, State
from nightjar.rollout.timing import RolloutTiming
from nightjar.rubrics import Rubric

AnyClient: TypeAlias = Client[Any, Any, Any, Any]


class RunnableEnvironment(Protocol):
    """What a run needs of an environment; ``Environment`` is the class to derive from."""

    env_id: str
    env_args: dict[str, Any]
    rubric: Rubric
    score_rollouts: bool
    pass_threshold: float
    state_columns: Sequence[str]

    @property
    def examples(self) -> Examples:
        """What is evaluated on."""

    async def init_state(
        self,
        input: RolloutInput,  # noqa: A002 - the name that environments know
        client: AnyClient | Any,
        model: str,
        sampling_args: SamplingArgs | None = None,
    ) -> State:
        """Returns the state of a rollout at its start."""

    async def rollout(
        self,
        input: RolloutInput,  # noqa: A002 - the name that environments know
        client: AnyClient,
        model: str,
        sampling_args: SamplingArgs | None = None,
    ) -> State:
        """Makes one attempt at an example."""


class EnvironmentRollouts:
    """Attempts of one model at the examples of one environment.

    Args:
        env: the environment.
        client: where the model is.
        model: its name there.
        sampling_args: override the environment's, key by key. ``seed`` is that of the first rollout of each example,
            the next one has the next: with one seed for all, they would all be alike.
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
        env: RunnableEnvironment,
        client: AnyClient,
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
        return await self._env.init_state(rollout_input, self._client, self._model, self._sampled(rollout_input))

    async def attempt(self, rollout_input: RolloutInput) -> State:
        """Makes one attempt.

        Raises:
            ConfigError: the environment's own ``rollout`` returned no state.
        """
        state = await self._env.rollout(rollout_input, self._client, self._model, self._sampled(rollout_input))
        if not isinstance(state, State):
            raise ConfigError(f"rollout() of {type(self._env).__name__} returned {type(state).__name__}, not a State")
        if isinstance(timing := state.get("timing"), RolloutTiming):
            timing.end_generation()
        return state

    def _sampled(self, rollout_input: RolloutInput) -> SamplingArgs:
        seed = self._sampling_args.get("seed")
        if not isinstance(seed, int):
            return self._sampling_args
        return {**self._sampling_args, "seed": seed + rollout_input["rollout_index"]}


def plan_groups(
    env: RunnableEnvironment,
    rollouts_per_example: int,
    is_independent: bool,
    rollouts: Mapping[int, int] | None = None,
) -> Plan:
    """Returns how the rollouts of an environment form groups.

    Args:
        env: the environment.
        rollouts_per_example: rollouts of each example.
        is_independent: each rollout is scored by itself.
        rollouts: example_id to number of rollouts, of examples that have another number.

    Raises:
        ConfigError: a reward function needs whole groups, and rollouts are to be scored by themselves.
    """
    scores_whole_groups = env.rubric.has_group_rewards and env.score_rollouts
    if scores_whole_groups and is_independent:
        raise ConfigError(
            f"Environment {env.env_id!r} has group reward functions, which cannot score rollouts independently"
        )
    return Plan(rollouts_per_example, is_independent, scores_whole_groups, rollouts or {})
