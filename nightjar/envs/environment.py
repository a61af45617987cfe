"""``Environment``: a dataset, a way to interact with the model, and a rubric."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from nightjar.clients import Client, ClientConfig, resolve_client
from nightjar.data import DatasetBuilder, Examples
from nightjar.decorators import decorated_methods
from nightjar.messages import Messages, Response, Tool, normalize_messages
from nightjar.parsers import Parser
from nightjar.rubrics import Rubric, RubricGroup
from nightjar.state import RolloutInput, SamplingArgs, State, add_usage, new_state

if TYPE_CHECKING:
    from datasets import Dataset

    from nightjar.envs.generation import GenerateOutputs


class Environment(ABC):
    """What a model is asked, how the exchange goes on, and what an answer is worth.

    Args:
        dataset: rows to train on: a list of dicts, a ``datasets.Dataset``, or a function that returns one. A row
            has ``prompt`` (messages) or ``question`` (a text), and may have ``answer``, ``info``, ``task`` and others.
        eval_dataset: rows to evaluate on; ``dataset`` where there is none.
        system_prompt: put before every prompt that has none.
        few_shot: messages between system prompt and question.
        parser: takes the answer out of a completion; given to reward functions.
        rubric: scores rollouts; an empty one unless given.
        sampling_args: defaults for the model, which a run overrides key by key.
        tool_defs: tools that the model is offered.
        env_id: the name it was loaded by; set by ``load_environment``.
        env_args: the arguments it was loaded with; set by ``load_environment``.
        score_rollouts: False leaves rollouts without a reward.
        pass_threshold: the reward from which on a rollout counts as correct for pass@k.
        **kwargs: become attributes.

    Raises:
        ValueError: neither dataset is given.
    """

    def __init__(
        self,
        dataset: Dataset | Sequence[Mapping[str, Any]] | DatasetBuilder | None = None,
        eval_dataset: Dataset | Sequence[Mapping[str, Any]] | DatasetBuilder | None = None,
        system_prompt: str | None = None,
        few_shot: Messages | None = None,
        parser: Parser | None = None,
        rubric: Rubric | None = None,
        sampling_args: SamplingArgs | None = None,
        tool_defs: list[Tool] | None = None,
        env_id: str | None = None,
        env_args: dict[str, Any] | None = None,
        score_rollouts: bool = True,
        pass_threshold: float = 0.5,
        **kwargs: Any,
    ) -> None:
        if dataset is None and eval_dataset is None:
            raise ValueError("Either dataset or eval_dataset must be provided")
        self.system_prompt = system_prompt
        self.few_shot = few_shot
        self.parser = parser or (rubric.parser if rubric else Parser())
        self.rubric = rubric or Rubric(parser=self.parser)
        self.sampling_args = dict(sampling_args or {})
        self.tool_defs = list(tool_defs or [])
        self.env_id = env_id or ""
        self.env_args = dict(env_args or {})
        self.score_rollouts = score_rollouts
        self.pass_threshold = pass_threshold
        self._train = self._examples(dataset)
        self._eval = self._examples(eval_dataset)
        for name, value in kwargs.items():
            setattr(self, name, value)

    def _examples(self, dataset: Any) -> Examples | None:
        return None if dataset is None else Examples(dataset, self.system_prompt, self.few_shot)

    @property
    def examples(self) -> Examples:
        """What is evaluated on: the evaluation dataset, or the only one there is."""
        return cast("Examples", self._eval or self._train)

    def get_dataset(self, n: int = -1, seed: int | None = None) -> Dataset:
        """Returns the formatted training dataset: the first n rows (all for n < 1), shuffled with ``seed``."""
        return _to_dataset(cast("Examples", self._train or self._eval), n, seed)

    def get_eval_dataset(self, n: int = -1, seed: int | None = None) -> Dataset:
        """Returns the formatted evaluation dataset: the first n rows (all for n < 1), shuffled with ``seed``."""
        return _to_dataset(self.examples, n, seed)

    def add_rubric(self, rubric: Rubric) -> None:
        """Adds a rubric: rewards are added, metrics put side by side."""
        if isinstance(self.rubric, RubricGroup):
            self.rubric.rubrics.append(rubric)
        else:
            self.rubric = RubricGroup([self.rubric, rubric])

    def set_score_rollouts(self, score_rollouts: bool) -> None:
        """Turns scoring on or off."""
        self.score_rollouts = score_rollouts

    async def init_state(
        self,
        input: RolloutInput,  # noqa: A002 - the name that environments know
        client: Client[Any, Any, Any, Any] | Any,
        model: str,
        sampling_args: SamplingArgs | None = None,
    ) -> State:
        """Returns the state of a rollout at its start. ``input`` is taken over, not copied."""
        columns = dict(input)
        columns["prompt"] = normalize_messages(input["prompt"], field_name="prompt")
        info = columns.get("info")
        offered = info.get("tool_defs") if isinstance(info, dict) else None
        state = new_state(
            cast("RolloutInput", columns),
            client=resolve_client(client),
            model=model,
            sampling_args={**self.sampling_args, **(sampling_args or {})},
            tool_defs=[Tool.model_validate(tool) for tool in offered] if offered else self.tool_defs,
        )
        state.remember_input()
        return state

    async def get_model_response(
        self,
        state: State,
        prompt: Messages | str,
        client: Client[Any, Any, Any, Any] | None = None,
        model: str | None = None,
        tool_defs: list[Tool] | None = None,
        sampling_args: SamplingArgs | None = None,
    ) -> Response:
        """Asks the model once; what is not given is taken from the state. Tokens are added to its usage.

        Raises:
            ModelError: the endpoint gave no usable answer.
            OverlongPromptError: the prompt does not fit.
        """
        asked: Client[Any, Any, Any, Any] = client or state["client"]
        response = await asked.get_response(
            prompt=normalize_messages(prompt, field_name="prompt"),
            model=model or state["model"],
            sampling_args=state["sampling_args"] if sampling_args is None else sampling_args,
            tools=state["tool_defs"] if tool_defs is None else tool_defs,
            **_headers_from(state, asked),
        )
        add_usage(state, response)
        return response

    @abstractmethod
    async def rollout(
        self,
        input: RolloutInput,  # noqa: A002 - the name that environments know
        client: Client[Any, Any, Any, Any],
        model: str,
        sampling_args: SamplingArgs | None = None,
    ) -> State:
        """Makes one attempt at an example and returns its state, unscored."""

    async def generate(
        self,
        inputs: Iterable[RolloutInput],
        client: Client[Any, Any, Any, Any] | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        **how: Any,
    ) -> GenerateOutputs:
        """Generates and scores rollouts of these inputs; inputs of one ``example_id`` form a group.

        Args:
            inputs: as rollouts take them, once for each rollout.
            client: a client, or a configuration from which one is made.
            model: its name at the endpoint.
            sampling_args: override the environment's, key by key.
            **how: the fields of ``nightjar.envs.generation.Generation``: ``max_concurrent``, ``max_retries``,
                ``results_path`` and so on.

        Raises:
            RunError: the endpoint refuses everything, or ``results_path`` cannot be used.
        """
        from nightjar.envs.generation import Generation, generate

        return await generate(self, inputs, client, model, sampling_args or {}, Generation(**how))

    def generate_sync(self, *args: Any, **kwargs: Any) -> GenerateOutputs:
        """Does what ``generate`` does, where no event loop runs."""
        return asyncio.run(self.generate(*args, **kwargs))

    async def evaluate(
        self,
        client: Client[Any, Any, Any, Any] | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        num_examples: int = -1,
        rollouts_per_example: int = 1,
        **how: Any,
    ) -> GenerateOutputs:
        """Generates and scores rollouts of the evaluation dataset.

        Args:
            client, model, sampling_args, **how: as for ``generate``.
            num_examples: the first so many; all for -1.
            rollouts_per_example: rollouts of each.
        """
        count = len(self.examples) if num_examples < 0 else min(num_examples, len(self.examples))
        chosen = [cast("RolloutInput", self.examples[position]) for position in range(count)]
        return await self.generate(chosen * rollouts_per_example, client, model, sampling_args, **how)

    def evaluate_sync(self, *args: Any, **kwargs: Any) -> GenerateOutputs:
        """Does what ``evaluate`` does, where no event loop runs."""
        return asyncio.run(self.evaluate(*args, **kwargs))

    async def is_completed(self, state: State) -> bool:
        """Asks the stop conditions in turn; the first that holds ends the rollout and is named in the state."""
        for condition in decorated_methods(self, "is_stop"):
            if await condition(state):
                state["is_completed"] = True
                state["stop_condition"] = condition.__name__
                cut = any(step["is_truncated"] for step in state["trajectory"])
                state["is_truncated"] = state["is_truncated"] or cut
                return True
        return False

    async def cleanup(self, state: State) -> None:
        """Runs the ``@cleanup`` methods at the end of a rollout."""
        for handler in decorated_methods(self, "is_cleanup"):
            await handler(state)

    async def teardown(self) -> None:
        """Runs the ``@teardown`` methods at the end of a run, the rubric's too."""
        for handler in decorated_methods(self, "is_teardown"):
            await handler()
        await self.rubric.teardown()


def _headers_from(state: State, client: Client[Any, Any, Any, Any]) -> dict[str, Any]:
    wanted = client.config.extra_headers_from_state if client.config else {}
    headers = {name: str(state[key]) for name, key in wanted.items() if state.get(key) is not None}
    return {"extra_headers": headers} if headers else {}


def _to_dataset(examples: Examples, n: int, seed: int | None) -> Dataset:
    import datasets

    dataset = datasets.Dataset.from_list([examples[position] for position in range(len(examples))])
    if seed is not None:
        dataset = dataset.shuffle(seed=seed)
    return dataset.select(range(min(n, len(dataset)))) if n > 0 else dataset
