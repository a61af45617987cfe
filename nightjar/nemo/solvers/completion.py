"""``CompletionSolver``: asks an endpoint how a text goes on."""

from __future__ import annotations

import time
from dataclasses import replace

from nightjar.clients import ClientConfig, OpenAICompletionsClient
from nightjar.envs.seeded.bridge import messages_of
from nightjar.envs.seeded.eval_environment import SeedResult
from nightjar.messages import TextMessage, content_text
from nightjar.nemo.engine.model_client import ModelClient, answer_of, client_of, current_rollout
from nightjar.nemo.solvers.base import SolveResult

_COMPLETIONS = "/completions"


class CompletionSolver:
    """Asks an endpoint how the prompt goes on; the arguments are those of ``ModelClient``."""

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
        """Answers one problem."""
        text = "\n\n".join(content_text(message["content"]) for message in messages_of(task))
        state, sampling = current_rollout.get(), self.client.sampling_args
        if state is not None and "seed" in sampling:
            sampling["seed"] += state["input"].get("rollout_index", 0)
        start = time.monotonic()
        response = await self._asked.get_response([TextMessage(content=text)], self.client.model, sampling, state=state)
        said = answer_of(response, (time.monotonic() - start) * 1000)
        return SolveResult(said.content, replace(said, request_prompt=text))

    async def close(self) -> None:
        """Closes the connections; they are made anew when they are needed."""
        await self._asked.close()
