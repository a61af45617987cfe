"""How an environment is evaluated from Python: ``evaluate``, ``generate``, and single groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, cast

from nightjar.calling import run_sync
from nightjar.clients import ClientConfig
from nightjar.envs.datasets import EnvironmentDatasets
from nightjar.envs.generation import generate, generate_group, generate_one
from nightjar.envs.outputs import GenerateOutputs, Generation
from nightjar.envs.rollouts import AnyClient, RunnableEnvironment
from nightjar.rollout.state import RolloutInput, SamplingArgs, State


class EvaluatedFromPython(EnvironmentDatasets, RunnableEnvironment):
    """The ways to run an environment's rollouts from Python; each goes through the same engine as a run."""

    async def run_rollout(self, *args: Any, **kwargs: Any) -> State:
        """Generates and scores one rollout: ``run_rollout(input, client, model, sampling_args, max_retries=0)``.

        A semaphore as the first argument, or as ``sem``, is held meanwhile.
        """
        return await generate_one(self, *args, **kwargs)

    async def run_group(
        self,
        group_inputs: Sequence[RolloutInput],
        client: AnyClient | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        max_retries: int = 0,
        **kwargs: Any,  # noqa: ARG002 - other arguments of other releases
    ) -> list[State]:
        """Generates and scores the rollouts of one example, and returns their states in the order of the inputs."""
        return await generate_group(self, group_inputs, client, model, sampling_args, max_retries)

    async def generate(
        self,
        inputs: Iterable[RolloutInput],
        client: AnyClient | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        max_concurrent: int = -1,
        **how: Any,
    ) -> GenerateOutputs:
        """Generates and scores rollouts of these inputs; inputs of one ``example_id`` form a group.

        Args:
            inputs: as rollouts take them, once for each rollout.
            client: a client, or a configuration from which one is made.
            model: its name at the endpoint.
            sampling_args: override the environment's, key by key.
            max_concurrent: rollouts at once; -1 for no limit.
            **how: the fields of ``nightjar.envs.outputs.Generation``: ``max_retries``, ``results_path``,
                ``state_columns``, ``on_progress`` and so on.

        Raises:
            RunError: the endpoint refuses everything, or ``results_path`` cannot be used.
        """
        known = [each.name for each in fields(Generation)]
        if unknown := sorted(how.keys() - set(known)):
            raise TypeError(
                f"evaluate() and generate() have no argument {unknown[0]!r}. Choose one of: {', '.join(known)}"
            )
        how_to = Generation(max_concurrent=max_concurrent, **how)
        return await generate(self, inputs, client, model, sampling_args or {}, how_to)

    def generate_sync(self, *args: Any, **kwargs: Any) -> GenerateOutputs:
        """Does what ``generate`` does, and waits for it."""
        return run_sync(self.generate(*args, **kwargs))

    async def evaluate(
        self,
        client: AnyClient | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        num_examples: int = -1,
        rollouts_per_example: int = 1,
        max_concurrent: int = -1,
        **how: Any,
    ) -> GenerateOutputs:
        """Generates and scores rollouts of the evaluation dataset.

        Args:
            client, model, sampling_args, max_concurrent, **how: as for ``generate``.
            num_examples: the first so many; all for -1.
            rollouts_per_example: rollouts of each.

        Example:
            >>> from nightjar.clients import ClientConfig
            >>> from nightjar.envs import SingleTurnEnv
            >>> from nightjar.testing import FixedAnswer, ModelServer
            >>> env = SingleTurnEnv(dataset=[{"question": "What is 2+2?", "answer": "4"}])
            >>> with ModelServer(FixedAnswer("4")) as server:
            ...     results = env.evaluate_sync(ClientConfig(api_base_url=server.base_url), "local")
            >>> results["outputs"][0]["completion"]
            [{'role': 'assistant', 'content': '4'}]
        """
        count = len(self.examples) if num_examples < 0 else min(num_examples, len(self.examples))
        chosen = [cast("RolloutInput", self.examples[position]) for position in range(count)]
        return await self.generate(chosen * rollouts_per_example, client, model, sampling_args, max_concurrent, **how)

    def evaluate_sync(self, *args: Any, **kwargs: Any) -> GenerateOutputs:
        """Does what ``evaluate`` does, and waits for it."""
        return run_sync(self.evaluate(*args, **kwargs))
