"""``ModelClient`` asks a model through Nightjar's client, with Nightjar's pace, retries and cache."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from nightjar.clients import ClientConfig, OpenAIChatCompletionsClient
from nightjar.clients.answer_cache import AnswerCache, CachingClient
from nightjar.clients.client import AnyClient
from nightjar.clients.credentials import NO_KEY
from nightjar.clients.openai_chat import OpenAIClient
from nightjar.clients.retries import repeat
from nightjar.clients.transport import Endpoint
from nightjar.compat.nemo.observability import ModelResponse
from nightjar.core.messages import Messages, Response, Tool, content_text, normalize_messages
from nightjar.core.rollout.state import SamplingArgs, State
from nightjar.core.secrecy import note_secrets
from nightjar.environments.seeded.rows import image_url

current_rollout: ContextVar[State | None] = ContextVar("current_rollout", default=None)
"""The rollout in progress. The cache and the rollout's own seed need it."""
_SAMPLING = ("temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
ClientT = TypeVar("ClientT", bound=OpenAIClient[Any, Any, Any])
_kept: set[AnyClient] = set()
"""Keeps a reference to each client, so that its connections stay open until the event loop ends."""
_ROUTE = "/chat/completions"
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens")


@dataclass
class RetryConfig:
    """How often a request is retried (docs/coming-from/nemo.md). Only ``max_retries`` is used; others are ignored."""

    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 60.0
    retry_on_status: list[int] = field(default_factory=lambda: [429, 500, 502, 503, 504])
    jitter: bool = True


@dataclass
class ToolCallInfo:
    """A tool call of the model; arguments that are not a JSON object are stored under ``raw``."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class ToolCallingResponse:
    content: str
    tool_calls: list[ToolCallInfo]
    finish_reason: str
    model_response: ModelResponse
    reasoning_content: str = ""


@dataclass
class ModelClient:
    """A model at an endpoint with OpenAI's protocol. It works in any event loop, and still works after ``close``.

    ``base_url`` may include the route, ``timeout`` is in seconds per request, ``reasoning_pattern`` is a regular
    expression of text to remove from responses. In an evaluation, each further repeat adds 1 to ``seed``.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    timeout: float = 120.0
    max_concurrent: int = 8
    cache_dir: str | None = None
    retry: RetryConfig = field(default_factory=RetryConfig)
    reasoning_pattern: str | None = None

    def __post_init__(self) -> None:
        self.base_url = self.base_url.rstrip("/").removesuffix(_ROUTE)
        config = ClientConfig(
            api_base_url=self.base_url,
            timeout=self.timeout,
            max_retries=self.retry.max_retries,
            max_concurrent=self.max_concurrent,
        )
        self._chat_client = client_of(_ChatClient, config, self.api_key)
        self.client: AnyClient = self._chat_client
        if self.cache_dir:
            Path(self.cache_dir).mkdir(parents=True, exist_ok=True)
            self.client = CachingClient(
                self._chat_client, AnswerCache(Path(self.cache_dir) / "answers.sqlite"), self.base_url
            )

    @property
    def sampling_args(self) -> SamplingArgs:
        return {name: value for name in _SAMPLING if (value := getattr(self, name)) is not None}

    async def chat(
        self, prompt: str | None = None, system: str | None = None, messages: list[dict[str, Any]] | None = None
    ) -> ModelResponse:
        """Returns the response to a conversation or a prompt; raises ``ModelError`` if no response is usable."""
        _, answer = await self._request(messages or _messages(prompt or "", system))
        answer.request_prompt, answer.request_system = prompt, system
        if self.reasoning_pattern:
            answer.content = re.sub(self.reasoning_pattern, "", answer.content, flags=re.DOTALL).strip()
        return answer

    async def vlm_chat(
        self, prompt: str, images: list[str], system: str | None = None, detail: str = "auto"
    ) -> ModelResponse:
        """Returns the response to a prompt with images: URLs, paths or bare base64."""
        shown = [{"type": "image_url", "image_url": {"url": image_url(image), "detail": detail}} for image in images]
        answer = await self.chat(messages=_messages([*shown, {"type": "text", "text": prompt}], system))
        answer.request_prompt, answer.request_system = prompt, system
        return answer

    async def chat_with_tools(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], **overrides: Any
    ) -> ToolCallingResponse:
        """Returns a response that may call tools in OpenAI's form; ``overrides`` are sampling parameters."""
        response, answer = await self._request(messages, [_tool(tool) for tool in tools], overrides)
        message = response.message
        calls = [ToolCallInfo(call.id, call.name, _arguments(call.arguments)) for call in message.tool_calls or []]
        return ToolCallingResponse(answer.content, calls, answer.finish_reason, answer, message.reasoning_content or "")

    async def embed(self, text: str) -> list[float]:
        return (await self.embed_batch([text]))[0]

    async def embed_batch(self, texts: list[str]) -> list[list[float]]:
        create = self._chat_client.client.embeddings.create
        request = lambda: create(model=self.model, input=texts, encoding_format="float")  # noqa: E731 - called again on a retry
        found = await repeat(request, self.retry.max_retries)
        return [each.embedding for each in sorted(found.data, key=lambda each: each.index)]

    async def close(self) -> None:
        await self._chat_client.close()

    async def _request(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: list[Tool] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[Response, ModelResponse]:
        conversation: Messages = normalize_messages(list(messages))
        return await ask(self.client, conversation, self.model, {**self.sampling_args, **(overrides or {})}, tools)


class _ChatClient(OpenAIChatCompletionsClient):
    async def from_native_response(self, response: Any) -> Response:
        answer = await super().from_native_response(response)
        setattr(answer, "native", response)  # noqa: B010 - it has no such field
        return answer


def client_of(kind: type[ClientT], config: ClientConfig, api_key: str | None) -> ClientT:
    """Returns a client with a given key. Logs and files hide the key."""
    if api_key:
        note_secrets(api_key)
    client: ClientT = kind(cast("Any", Endpoint(config, api_key or NO_KEY)))
    client.config, client.max_retries = config, config.max_retries
    _kept.add(client)
    return client


async def ask(
    client: AnyClient, messages: Messages, model: str, sampling: SamplingArgs, tools: list[Tool] | None = None
) -> tuple[Response, ModelResponse]:
    """Returns a response in two forms, for clients and for solvers. Each repeat in an evaluation has its own seed."""
    state = current_rollout.get()
    if state is not None and isinstance(sampling.get("seed"), int):
        sampling = {**sampling, "seed": sampling["seed"] + state["input"].get("rollout_index", 0)}
    start = time.monotonic()
    response = await client.get_response(messages, model, sampling, tools, state=state)
    return response, _answer(response, (time.monotonic() - start) * 1000)


def _answer(response: Response, latency_ms: float) -> ModelResponse:
    usage, native = response.usage, getattr(response, "native", None)
    return ModelResponse(
        content=content_text(response.message.content),
        model=response.model,
        finish_reason=response.message.finish_reason or "",
        **{name: getattr(usage, name, None) for name in COUNTS},
        latency_ms=round(latency_ms, 3),
        raw_response=native if isinstance(native, dict) else {} if native is None else native.model_dump(),
    )


def _messages(content: Any, system: str | None) -> list[dict[str, Any]]:
    return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": content}]


def _tool(tool: Mapping[str, Any]) -> Tool:
    function = tool.get("function", tool)
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return Tool(name=function["name"], description=function.get("description") or "", parameters=parameters)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {"raw": text}
    return found if isinstance(found, dict) else {"raw": text}
