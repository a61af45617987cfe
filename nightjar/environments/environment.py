"""``Environment``: the base class of all environments."""

# ruff: noqa: A002 - environments know the argument ``input`` by this name
from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import orjson

from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.client import AnyClient
from nightjar.core.calling import call_named, run_sync
from nightjar.core.calling.decorators import decorated_methods
from nightjar.core.messages import AssistantMessage, Messages, Response, Tool, normalize_messages
from nightjar.core.rollout.state import RolloutInput, SamplingArgs, State, add_usage, new_state, tracker_of, usage_of
from nightjar.core.rollout.usage import TokenUsage
from nightjar.environments.data import DatasetBuilder
from nightjar.environments.datasets import EnvironmentDatasets, results_dataset
from nightjar.environments.generation import GenerateOutputs, Generation, generate, generate_group, generate_one
from nightjar.environments.parsers import Parser
from nightjar.environments.rubrics import Rubric, RubricGroup
from nightjar.environments.rubrics.calls import run_all
from nightjar.errors import ConfigError

if TYPE_CHECKING:
    from datasets import Dataset

Reply: TypeAlias = str | AssistantMessage
ReferenceReply: TypeAlias = Callable[[Mapping[str, Any]], Reply | Sequence[Reply] | None]

_OLD_TOOLS = (
    "{} is no longer supported. Use tool_defs with tools in Nightjar's own form: "
    "[{{'name': ..., 'description': ..., 'parameters': {{...}}}}]"
)


class Environment(EnvironmentDatasets, ABC):
    """A dataset, a way to interact with the model, and a rubric.

    Args:
        dataset: training rows: a list of dicts, a ``datasets.Dataset``, or a function that returns one. A row
            has ``prompt`` (messages) or ``question`` (a text), and may have ``answer``, ``info``, ``task`` and others.
        few_shot: messages between system prompt and question.
        sampling_args: default sampling arguments, which a run overrides key by key.
        message_type, max_workers, map_kwargs: accepted for compatibility, without effect.
        max_seq_len: maximum number of tokens in a step, for endpoints that return token ids.
        pass_threshold: the lowest reward of a rollout that counts as correct for pass@k.
        reference_reply: a function that returns the correct reply to an example, for ``nightjar env validate``. The
            reply is a text or a message, a list of them for several turns, or None if unknown. By default, it is the
            ``answer``.

    Example:
        >>> from nightjar.environments import SingleTurnEnv
        >>> env = SingleTurnEnv(dataset=[{"question": "What is 2+2?", "answer": "4"}], system_prompt="Be brief.")
        >>> [message["role"] for message in env.get_dataset()[0]["prompt"]]
        ['system', 'user']
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
        message_type: str = "chat",
        tool_defs: Sequence[Tool | Mapping[str, Any]] | None = None,
        max_workers: int = 512,
        env_id: str | None = None,
        env_args: dict[str, Any] | None = None,
        map_kwargs: dict[str, Any] | None = None,
        max_seq_len: int | None = None,
        score_rollouts: bool = True,
        pass_threshold: float = 0.5,
        reference_reply: ReferenceReply | None = None,
        **kwargs: Any,
    ) -> None:
        if "oai_tools" in kwargs:
            raise ValueError(_OLD_TOOLS.format("`oai_tools`"))
        super().__init__(dataset, eval_dataset, system_prompt, few_shot)
        self.logger = logging.getLogger(f"{__name__}.{type(self).__name__}")
        self.message_type = message_type
        self.parser = parser or (rubric.parser if rubric else Parser())
        self.rubric = rubric or Rubric(parser=self.parser)
        if type(self.parser) is not type(self.rubric.parser):
            self.logger.warning(
                "The environment's parser is a %s, but reward functions get the rubric's parser, a %s",
                type(self.parser).__name__, type(self.rubric.parser).__name__,
            )  # fmt: skip
        self.own_sampling_args: SamplingArgs = dict(sampling_args or {})
        self.sampling_args: SamplingArgs = {"n": 1, "extra_body": {}, **self.own_sampling_args}
        self.tool_defs = _tools(tool_defs)
        self.max_workers = max_workers
        self.env_id = env_id or ""
        self.env_args = dict(env_args or {})
        self.map_kwargs = dict(map_kwargs or {})
        self.max_seq_len = max_seq_len
        self.pass_threshold = pass_threshold
        self.reference_reply: ReferenceReply = reference_reply or (lambda example: example.get("answer"))
        self.set_score_rollouts(score_rollouts)
        for name, value in kwargs.items():
            setattr(self, name, value)

    make_dataset = staticmethod(results_dataset)
    state_columns: Sequence[str] = ()
    """Keys of the state that every run keeps in its results."""
    run_folder: Path | None = None
    """The directory of the run in progress, for files that belong to rollouts; None if the run is in memory."""

    @property
    def requires_group_rollouts(self) -> bool:
        """Whether a reward function needs all rollouts of an example at once."""
        return self.rubric.has_group_rewards

    @property
    def provides_advantages(self) -> bool:
        """Always False, because Nightjar computes advantages from rewards."""
        return False

    def reference_replies(self, example: Mapping[str, Any]) -> list[AssistantMessage]:
        """Returns the correct reply to an example for each turn. The list is empty if the replies are unknown."""
        said = self.reference_reply(example)
        turns = [said] if isinstance(said, str | AssistantMessage) else said or []
        return [AssistantMessage(content=turn) if isinstance(turn, str) else turn for turn in turns if turn]

    def add_rubric(self, rubric: Rubric) -> None:
        """Adds a rubric, whose reward and metrics are added to the existing ones."""
        if isinstance(self.rubric, RubricGroup):
            self.rubric.rubrics.append(rubric)
        else:
            self.rubric = RubricGroup([self.rubric, rubric])

    def set_kwargs(self, **kwargs: Any) -> None:
        """Sets attributes, through the method ``set_<name>`` if it exists."""
        for name, value in kwargs.items():
            setter = getattr(self, f"set_{name}", None)
            if callable(setter):
                setter(value)
            else:
                setattr(self, name, value)

    def set_score_rollouts(self, score_rollouts: bool) -> None:
        """Turns scoring on or off."""
        self.score_rollouts = score_rollouts

    def set_scorers(self, scorers: Sequence[str]) -> None:
        """Adds scorers by name. Each gives a metric ``scorer:NAME``, such as scorer:mcq_extract, without weight."""
        from nightjar.environments.seeded.scorers import rubric_of_scorers

        self.add_rubric(rubric_of_scorers(scorers))

    def set_max_seq_len(self, max_seq_len: int | None) -> None:
        """Sets the maximum number of tokens in a step; None means no limit."""
        self.max_seq_len = max_seq_len

    def set_concurrency(self, concurrency: int) -> None:
        """Records how many rollouts will run at once; threads start on demand."""
        self.concurrency = concurrency

    def set_max_sandboxes(self, max_sandboxes: int | None) -> None:
        """Sets the maximum number of sandboxes at once. By default, an environment has no sandboxes and ignores it."""

    async def init_state(
        self, input: RolloutInput, client: AnyClient | Any, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        """Returns the initial state of a rollout. The state takes over the values of ``input``."""
        columns = dict(input)
        columns["prompt"] = normalize_messages(input["prompt"], field_name="prompt")
        info: Any = columns.get("info")
        if isinstance(info, str):
            info = columns["info"] = _parsed(info)
        told = info if isinstance(info, dict) else {}
        if "oai_tools" in told:
            raise ValueError(_OLD_TOOLS.format("info['oai_tools']"))
        offered = told.get("tool_defs")
        state = new_state(
            cast("RolloutInput", columns),
            client=resolve_client(client),
            model=model,
            sampling_args={**self.sampling_args, **(sampling_args or {})},
            tool_defs=self.tool_defs or [] if offered is None else _tools(offered),
        )
        state.remember_input()
        return state

    async def get_model_response(
        self,
        state: State,
        prompt: Messages | str,
        client: AnyClient | None = None,
        model: str | None = None,
        tool_defs: list[Tool] | None = None,
        sampling_args: SamplingArgs | None = None,
    ) -> Response:
        """Sends one request and counts its tokens. Missing arguments come from the state. May raise ``ModelError``."""
        asked: AnyClient = client or state["client"]
        response = await asked.get_response(
            prompt=normalize_messages(prompt, field_name="prompt"),
            model=model or state["model"],
            sampling_args=sampling_args or state["sampling_args"] or {},
            tools=(state.get("tool_defs") if tool_defs is None else tool_defs) or None,
            state=state,
        )
        add_usage(state, response)
        return response

    def increment_state_usage(self, state: State, input_tokens: float = 0, output_tokens: float = 0) -> None:
        """Counts tokens that were not used by ``get_model_response``."""
        tracker_of(state).increment(input_tokens, output_tokens)

    def increment_state_usage_from_response(self, state: State, response: Any) -> None:
        """Counts the tokens of any SDK's response."""
        add_usage(state, response)

    def get_state_usage(self, state: State) -> TokenUsage | None:
        """Returns the numbers of tokens of a rollout so far; None if no server has reported any tokens."""
        return usage_of(state)

    @abstractmethod
    async def rollout(
        self, input: RolloutInput, client: AnyClient, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        """Makes one attempt at an example and returns its state without scoring it."""

    async def is_completed(self, state: State, **kwargs: Any) -> bool:
        """Checks the stop conditions in order; the first that holds ends the rollout and is recorded in the state."""
        for condition in decorated_methods(self, "stop_priority"):
            if await call_named(condition, state=state, env=self, **kwargs):
                self._complete(state, condition.__name__)
                return True
        return False

    def _complete(self, state: State, stop_condition: str) -> None:
        was_cut = any(step.get("is_truncated") for step in state.get("trajectory") or ())
        is_truncated = bool(state.get("is_truncated") or was_cut)
        state.update(is_completed=True, stop_condition=stop_condition, is_truncated=is_truncated)

    async def cleanup(self, state: State, task: Any = None, resources: Any = None) -> None:
        """Runs all ``@cleanup`` methods at the end of a rollout, then raises their first error."""
        objects = {"state": state, "env": self, "task": task, "resources": resources}
        calls = [partial(call_named, handler, **objects) for handler in decorated_methods(self, "cleanup_priority")]
        await run_all(calls, getattr(self, "hook_timeout_seconds", None))

    async def run_rollout(self, *args: Any, **kwargs: Any) -> State:
        """Generates and scores one rollout: ``run_rollout(input, client, model, sampling_args, max_retries=0)``.

        A semaphore may be passed as the first argument or as ``sem``. It is held during the rollout.
        """
        return await generate_one(self, *args, **kwargs)

    async def run_group(
        self,
        group_inputs: Sequence[RolloutInput],
        client: AnyClient | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        max_retries: int = 0,
        **kwargs: Any,  # noqa: ARG002 - arguments of other releases
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
        """Generates and scores one rollout for each input; inputs with the same ``example_id`` form a group.

        ``how`` has fields of ``nightjar.environments.generation.Generation``. Raises ``RunError`` if the endpoint
        refuses all requests or ``results_path`` cannot be used.
        """
        known = [each.name for each in fields(Generation)]
        if unknown := sorted(how.keys() - set(known)):
            raise TypeError(
                f"evaluate() and generate() have no argument {unknown[0]!r}. Choose one of: {', '.join(known)}"
            )
        how_to = Generation(max_concurrent=max_concurrent, **how)
        return await generate(self, inputs, client, model, sampling_args or {}, how_to)

    def generate_sync(
        self,
        inputs: Iterable[RolloutInput],
        client: AnyClient | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        max_concurrent: int = -1,
        **how: Any,
    ) -> GenerateOutputs:
        """Runs ``generate`` and waits for it."""
        return run_sync(self.generate(inputs, client, model, sampling_args, max_concurrent, **how))

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
        """Generates and scores rollouts of the first ``num_examples`` rows of the evaluation dataset; -1 means all.

        Example:
            >>> from nightjar.clients import ClientConfig
            >>> from nightjar.environments import SingleTurnEnv
            >>> from nightjar.model_server import FixedAnswer, ModelServer
            >>> env = SingleTurnEnv(dataset=[{"question": "What is 2+2?", "answer": "4"}])
            >>> with ModelServer(FixedAnswer("4")) as server:
            ...     results = env.evaluate_sync(ClientConfig(api_base_url=server.base_url), "local")
            >>> results["outputs"][0]["completion"]
            [{'role': 'assistant', 'content': '4'}]
        """
        count = len(self.examples) if num_examples < 0 else min(num_examples, len(self.examples))
        chosen = [cast("RolloutInput", self.examples[position]) for position in range(count)]
        return await self.generate(chosen * rollouts_per_example, client, model, sampling_args, max_concurrent, **how)

    def evaluate_sync(
        self,
        client: AnyClient | ClientConfig,
        model: str,
        sampling_args: SamplingArgs | None = None,
        num_examples: int = -1,
        rollouts_per_example: int = 1,
        max_concurrent: int = -1,
        **how: Any,
    ) -> GenerateOutputs:
        """Runs ``evaluate`` and waits for it. To store and publish a run, use ``nightjar.evaluate``."""
        return run_sync(
            self.evaluate(client, model, sampling_args, num_examples, rollouts_per_example, max_concurrent, **how)
        )


def _tools(tools: Sequence[Tool | Mapping[str, Any]] | None) -> list[Tool]:
    for tool in tools or []:
        if isinstance(tool, Mapping) and tool.get("type") == "function" and "function" in tool:
            raise ValueError(_OLD_TOOLS.format("OpenAI's form of a tool"))
    return [tool if isinstance(tool, Tool) else Tool.model_validate(tool) for tool in tools or []]


def _parsed(info: str) -> Any:
    try:
        return orjson.loads(info)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"'info' is a text, but not JSON: {error}: {info[:100]!r}") from error
