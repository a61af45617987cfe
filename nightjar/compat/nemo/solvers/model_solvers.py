"""Solvers that ask a model, an agent, or return the reference answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from nightjar.clients import ClientConfig, OpenAICompletionsClient
from nightjar.compat.nemo.engine.model_client import ModelClient, answer_of, client_of, current_rollout
from nightjar.compat.nemo.environments.gym_environment import GymEndpoint
from nightjar.compat.nemo.environments.gym_protocol import extract_assistant_text
from nightjar.compat.nemo.observability import ModelResponse
from nightjar.compat.nemo.solvers.base import SolveResult
from nightjar.core.messages import TextMessage, content_text
from nightjar.environments.seeded.bridge import messages_of
from nightjar.environments.seeded.eval_environment import SeedResult
from nightjar.errors import Error

_COMPLETIONS = "/completions"


class ChatSolver:
    """Asks a model for a chat response; ``system_prompt`` replaces the benchmark's unless it is None."""

    def __init__(self, client: Any, system_prompt: str | None = None) -> None:
        self.client = client
        self.system_prompt = system_prompt

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers a problem."""
        if task.messages or task.images:
            response = await self.client.chat(messages=messages_of(task, self.system_prompt))
        else:
            response = await self.client.chat(task.prompt, system=self.system_prompt or task.system)
        return SolveResult(response.content, response)

    async def close(self) -> None:
        """Closes the client, which reopens on use."""
        await self.client.close()


class VLMSolver(ChatSolver):
    """Asks a model about images; a problem without any is a chat. ``image_detail`` is ``auto``, ``low`` or ``high``."""

    def __init__(self, client: Any, system_prompt: str | None = None, image_detail: str = "auto") -> None:
        super().__init__(client, system_prompt)
        self.image_detail = image_detail
        self.settings = {"image_detail": image_detail}

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers a problem."""
        if not task.images or task.messages:
            return await super().solve(task)
        system = self.system_prompt or task.system
        response = await self.client.vlm_chat(task.prompt, task.images, system=system, detail=self.image_detail)
        return SolveResult(response.content, response)


class CompletionSolver:
    """Asks an endpoint to complete the prompt; the arguments are those of ``ModelClient``."""

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: list[str] | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
    ) -> None:
        url = base_url.rstrip("/").removesuffix(_COMPLETIONS)
        self.client = ModelClient(
            url, model, api_key, temperature, max_tokens, top_p, seed, stop, frequency_penalty, presence_penalty
        )
        config = ClientConfig(
            api_base_url=url, client_type="openai_completions", max_retries=self.client.retry.max_retries
        )
        self._asked = client_of(OpenAICompletionsClient, config, api_key)

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers a problem."""
        text = "\n\n".join(content_text(message["content"]) for message in messages_of(task))
        state, sampling = current_rollout.get(), self.client.sampling_args
        if state is not None and "seed" in sampling:
            sampling["seed"] += state["input"].get("rollout_index", 0)
        start = time.monotonic()
        response = await self._asked.get_response([TextMessage(content=text)], self.client.model, sampling, state=state)
        answer = answer_of(response, (time.monotonic() - start) * 1000)
        return SolveResult(answer.content, replace(answer, request_prompt=text))

    async def close(self) -> None:
        """Closes the connections; they are reopened on use."""
        await self._asked.close()


class OracleSolver:
    """Answers with the reference, to try a benchmark without a model. Its arguments are accepted and ignored."""

    def __init__(
        self,
        *,
        timeout: float = 1800.0,
        run_timeout: float | None = None,
        timeout_strategy: str = "override",
        max_agent_timeout: float | None = None,
    ) -> None:
        del timeout, run_timeout, timeout_strategy, max_agent_timeout

    async def solve(self, task: SeedResult) -> SolveResult:
        """Returns the reference answer."""
        return SolveResult(task.expected_answer)


class GymSolver:
    """Asks an agent of NeMo Gym: ``POST /run`` with the problem returns answer and reward.

    Args:
        gym_agent: sent as ``agent``, for a server with several.
        trust_reward: use the agent's reward; else the benchmark verifies the answer.
        model_id, model_url, api_key: the model for an agent that has none.
        timeout: seconds per problem.
    """

    def __init__(
        self,
        gym_url: str,
        *,
        gym_agent: str | None = None,
        trust_reward: bool = False,
        model_id: str = "",
        model_url: str = "",
        api_key: str | None = None,
        timeout: float = 3600.0,
    ) -> None:
        self._server = GymEndpoint(gym_url, timeout)
        self._gym_agent = gym_agent
        self._trust_reward = trust_reward
        self._model = {"model": model_id, "base_url": model_url, "api_key": api_key}
        self.settings = {
            "gym_url": self._server.url,
            "gym_agent": gym_agent,
            "trust_reward": trust_reward,
            "model_id": model_id,
            "model_url": model_url,
        }

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers a problem."""
        result = await self._server.call("POST", "/run", self._request(task))
        answer = result.get("response")
        try:
            text = extract_assistant_text(answer)
        except ValueError as error:
            raise Error(f"{self._server.url}/run returned no answer: {error}") from error
        reward = result.get("reward") if self._trust_reward else None
        if self._trust_reward and not isinstance(reward, int | float):
            raise Error(f"{self._server.url}/run returned no numeric reward (found {reward!r})")
        trajectory = answer.get("output") or [] if isinstance(answer, dict) else []
        return SolveResult(text, _model_response(text, answer), trajectory, reward)

    async def close(self) -> None:
        """Closes the connections."""
        await self._server.close()

    def _request(self, task: SeedResult) -> dict[str, Any]:
        request: dict[str, Any] = {"input": messages_of(task)}
        if self._model["model"]:
            request["model"] = self._model["model"]
        settings = {name: value for name, value in self._model.items() if name != "model" and value}
        body = {
            **task.metadata,
            "expected_answer": task.expected_answer,
            "responses_create_params": request,
            **settings,
        }
        return body if self._gym_agent is None else {**body, "agent": self._gym_agent}


def _model_response(text: str, answer: Any) -> ModelResponse:
    if not isinstance(answer, dict):
        return ModelResponse(text)
    usage = answer.get("usage") or {}
    return ModelResponse(
        text,
        str(answer.get("model") or ""),
        "stop",
        prompt_tokens=usage.get("input_tokens"),
        completion_tokens=usage.get("output_tokens"),
        total_tokens=usage.get("total_tokens"),
        raw_response=answer,
    )
