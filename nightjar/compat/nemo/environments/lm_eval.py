"""Tasks of lm-eval, EleutherAI's evaluation harness, and ``lm-eval://``; see docs/guides/lm-eval-tasks.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from nightjar.clients import OpenAICompletionsClient
from nightjar.clients.client import AnyClient
from nightjar.compat.nemo.environments.lm_eval_task import (
    GENERATED,
    ROLLING,
    Likelihood,
    LikelihoodRequest,
    LMEvalTask,
    likelihood_of,
    sampling_args_of,
)
from nightjar.compat.nemo.environments.uris import RowBenchmark, count_of, number_of, taken_apart
from nightjar.core.messages import Messages, Response, ResponseMessage, Tool, UserMessage
from nightjar.core.rollout.state import SamplingArgs, State
from nightjar.environments.seeded.bridge import SeededEnv
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.errors import ConfigError, Error, OverlongPromptError, UnsupportedTaskTypeError

_OF_URI = ("num_fewshot", "limit", "include_path", "metric", "begin")
DOC = "doc_id"
"""The number of a document in the metadata of its problem."""
LIKELIHOODS = "log_likelihoods"
"""The key for the probabilities in the answer of a rollout."""
_MOST_STOPS = 4


class LMEvalEnv(SeededEnv):
    """A task of lm-eval as an environment.

    A task that generates text sends lm-eval's requests: a chat with the examples as turns, or one completions prompt.
    A task that compares probabilities sends one request per text. The completion of the rollout is the JSON list of all
    probabilities.
    """

    def __init__(self, benchmark: Any, judge: Any = None, **kwargs: Any) -> None:
        self._task: LMEvalTask = benchmark.task
        super().__init__(benchmark, judge, sampling_args=self._task.sampling_args, **kwargs)

    async def setup_state(self, state: State) -> State:
        """Chooses the prompt for the endpoint, and limits the stop sequences to the number that chats accept."""
        if is_of_texts(state["client"]):
            state["prompt"] = [UserMessage(content=self._task.problem(state["info"][DOC]).text)]
        elif self._task.kind != GENERATED:
            raise ConfigError(
                f"Task {self._task.name!r} of lm-eval compares the probabilities of texts, which chat endpoints "
                "do not return. It needs a completions endpoint: --api-client-type openai_completions"
            )
        elif (stop := state["sampling_args"].get("stop")) == self.own_sampling_args.get("stop") and stop:
            state["sampling_args"] = {**state["sampling_args"], "stop": stop[:_MOST_STOPS]}
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
        if self._task.kind == GENERATED:
            return await super().get_model_response(state, prompt, client, model, tool_defs, sampling_args)
        found = [await self._likelihood(state, each) for each in self._task.problem(state["info"][DOC]).requests]
        answers = [value for value, _ in found] if self._task.kind == ROLLING else found
        message = ResponseMessage(
            content=orjson.dumps({LIKELIHOODS: answers}).decode(), finish_reason="stop", is_truncated=False
        )
        return Response(id="", created=0, model=state["model"], message=message)

    async def _likelihood(self, state: State, request: LikelihoodRequest) -> Likelihood:
        prompt: Messages = [UserMessage(content=request.prompt)]
        sampling = sampling_args_of(state["sampling_args"])
        try:
            response = await super().get_model_response(state, prompt, sampling_args=sampling)
        except OverlongPromptError as error:  # would end and score the rollout, but other texts may fit
            raise Error(f"The text is too long for its probability: {error}") from None
        return likelihood_of(response.logprobs, request)


def is_of_texts(client: AnyClient) -> bool:
    if client.config is None:
        return isinstance(client, OpenAICompletionsClient)
    return client.config.client_type == "openai_completions"


class LMEvalEnvironment(RowBenchmark):
    """A task of lm-eval as a benchmark, with lm-eval's prompts, examples, filters and metrics.

    Args:
        num_fewshot: number of examples before a question; None means the task's number.
        limit: use the first documents only, as a count or as a share below 1.
        include_path: a folder of YAML files with further tasks.
        metric: the reward, such as ``exact_match,strict-match``; None means the first metric in lm-eval's tables.
        begin: text in place of lm-eval's begin token before texts without context, because a probability needs context.
    """

    environment_class = LMEvalEnv

    def __init__(
        self,
        task_name: str,
        num_fewshot: int | None = None,
        limit: float | None = None,
        *,
        include_path: str | None = None,
        metric: str | None = None,
        begin: str = "",
    ) -> None:
        super().__init__()
        self.name = f"lm-eval:{task_name}"
        self.task = LMEvalTask(task_name, num_fewshot, limit, include_path, metric, begin)

    def __len__(self) -> int:
        return len(self.task)

    async def seed(self, idx: int) -> SeedResult:
        problem = self.task.problem(idx)
        metadata = {**self.task.columns(idx), DOC: idx}
        return SeedResult(problem.text, self.task.target(idx), metadata, messages=[*problem.messages] or None)

    async def verify_row(
        self,
        response: str,
        expected: str,  # noqa: ARG002 - the document has it
        metadata: Mapping[str, Any],
        sandbox: Any = None,  # noqa: ARG002
    ) -> VerifyResult:
        answers = [response] if self.task.kind == GENERATED else self._likelihoods(response)
        details, extracted = self.task.score(int(metadata[DOC]), answers)
        reward = float(details[self.task.metrics.reward])
        return VerifyResult(reward, extracted if isinstance(extracted, str) else None, details)

    def totals(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Returns the metrics of a run as aggregated by lm-eval, including metrics that are not means (perplexity)."""
        return self.task.metrics.totals(row["scoring_details"] for row in rows if row["reward"] is not None)

    def _likelihoods(self, response: str) -> list[Any]:
        try:
            content = orjson.loads(response)
        except orjson.JSONDecodeError:
            content = None
        if not isinstance(content, dict) or LIKELIHOODS not in content:
            raise UnsupportedTaskTypeError(
                f"Task {self.task.name!r} of lm-eval compares probabilities, but the answer is a text. "
                "Run it with: nightjar eval run --api-client-type openai_completions"
            )
        return [tuple(each) if isinstance(each, list) else each for each in content[LIKELIHOODS]]


def lm_eval_environment(uri: str, **kwargs: Any) -> EvalEnvironment:
    task, options = taken_apart(uri, _OF_URI, kwargs, numbers={"num_fewshot": count_of, "limit": number_of})
    return LMEvalEnvironment(task, **options)
