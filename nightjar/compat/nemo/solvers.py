"""Solvers answer the problems of a benchmark: they ask a model or an agent, or return the reference.

For ``ReActSolver``, every ``POST /NAME`` in a server's ``/openapi.json`` is a tool, unless it belongs to the protocol
of resources servers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from nightjar.clients import ClientConfig, OpenAICompletionsClient
from nightjar.compat.nemo.engine.model_client import (
    COUNTS,
    ModelClient,
    ToolCallInfo,
    ToolCallingResponse,
    ask,
    client_of,
)
from nightjar.compat.nemo.environments.gym_environment import GymEndpoint
from nightjar.compat.nemo.environments.gym_protocol import extract_assistant_text
from nightjar.compat.nemo.observability import ModelResponse
from nightjar.core.messages import TextMessage, content_text
from nightjar.environments.seeded.bridge import messages_of
from nightjar.environments.seeded.eval_environment import SeedResult
from nightjar.errors import ConfigError, Error, InfraError

_COMPLETIONS = "/completions"
_NO_TOOLS = frozenset({"seed_session", "verify", "health", "run", "aggregate_metrics"})
_JSON = "application/json"
_SHOWN_CHARACTERS = 4096
_REFUSED = 400
_BROKEN = frozenset({502, 503, 504})
_MODES = ("last_message", "all_messages")


class ErrorKind(Enum):
    """Whether a solver's error makes the answer wrong or fails the step."""

    NONE = "none"
    GRACEFUL = "graceful"
    INFRA = "infra_error"
    TOOL_INFRA = "tool_infra"
    SYSTEM = "system"
    SOLVE_TIMEOUT = "solve_timeout"


@dataclass
class SolveResult:
    """An answer, or an error with its kind. If ``reward`` is set, the benchmark does not verify the answer."""

    response: str
    model_response: ModelResponse | None = None
    trajectory: list[dict[str, Any]] = field(default_factory=list)
    reward: float | None = None
    scoring_details: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    error_kind: ErrorKind = ErrorKind.NONE


class Solver(Protocol):
    """Answers problems, many concurrently.

    An optional dict ``settings`` holds the settings that affect the answers, except the client. A resume compares it.
    """

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers a problem.

        Raises ``GracefulError`` at a limit, which makes the answer wrong, or ``InfraError`` if a retry may succeed.
        """


class ChatSolver:
    """Asks a model for a chat response; ``system_prompt`` replaces the benchmark's prompt unless it is None."""

    def __init__(self, client: Any, system_prompt: str | None = None) -> None:
        self.client = client
        self.system_prompt = system_prompt

    async def solve(self, task: SeedResult) -> SolveResult:
        if task.messages or task.images:
            response = await self.client.chat(messages=messages_of(task, self.system_prompt))
        else:
            response = await self.client.chat(task.prompt, system=self.system_prompt or task.system)
        return SolveResult(response.content, response)

    async def close(self) -> None:
        await self.client.close()


class VLMSolver(ChatSolver):
    """Asks a model about images, or chats if there are no images. ``image_detail`` is ``auto``, ``low`` or ``high``."""

    def __init__(self, client: Any, system_prompt: str | None = None, image_detail: str = "auto") -> None:
        super().__init__(client, system_prompt)
        self.image_detail = image_detail
        self.settings = {"image_detail": image_detail}

    async def solve(self, task: SeedResult) -> SolveResult:
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
        text = "\n\n".join(content_text(message["content"]) for message in messages_of(task))
        model, sampling = self.client.model, self.client.sampling_args
        _, answer = await ask(self._asked, [TextMessage(content=text)], model, sampling)
        return SolveResult(answer.content, replace(answer, request_prompt=text))

    async def close(self) -> None:
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
        return SolveResult(task.expected_answer)


class GymSolver:
    """Asks an agent of NeMo Gym: ``POST /run`` with the problem returns answer and reward.

    Args:
        gym_agent: sent as ``agent``, for a server with several agents.
        trust_reward: use the agent's reward; otherwise, the benchmark verifies the answer.
        model_id, model_url, api_key: the model for an agent that has no model.
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
        self._trust_reward = trust_reward
        self._model = {"model": model_id} if model_id else {}
        sent = {"base_url": model_url, "api_key": api_key, "agent": gym_agent}
        self._sent = {name: value for name, value in sent.items() if value}
        self.settings = {
            "gym_url": self._server.url,
            "gym_agent": gym_agent,
            "trust_reward": trust_reward,
            "model_id": model_id,
            "model_url": model_url,
        }

    async def solve(self, task: SeedResult) -> SolveResult:
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
        await self._server.close()

    def _request(self, task: SeedResult) -> dict[str, Any]:
        return {
            **task.metadata,
            "expected_answer": task.expected_answer,
            "responses_create_params": {"input": messages_of(task), **self._model},
            **self._sent,
        }


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


class ToolBackend(Protocol):
    async def list_tools(self) -> list[dict[str, Any]]:
        """Returns the tools in OpenAI's form."""

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Calls a tool; the model receives exceptions as text."""


class HttpToolBackend:
    """The tools of a server, such as a resources server of NeMo Gym; ``session_id`` is added to calls that lack it."""

    def __init__(self, base_url: str, *, session_id: str | None = None, timeout: float = 180.0) -> None:
        self._server = GymEndpoint(base_url, timeout)
        self._session_id = session_id
        self._tools: list[dict[str, Any]] | None = None

    async def list_tools(self) -> list[dict[str, Any]]:
        if self._tools is None:
            status, text = await self._send("GET", "/openapi.json")
            try:
                self._tools = [*_tools_of(json.loads(text))]
            except (ValueError, AttributeError, TypeError, LookupError) as error:
                shown = text[:_SHOWN_CHARACTERS]
                raise InfraError(
                    f"{self._server.url}/openapi.json lists no tools (status {status}): {shown}"
                ) from error
        return self._tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Returns a tool's answer or error as text; raises ``InfraError`` if the server does not answer."""
        if all(tool["function"]["name"] != name for tool in await self.list_tools()):
            return f"There is no tool {name!r}"
        own = {} if self._session_id is None else {"session_id": self._session_id}
        status, text = await self._send("POST", f"/{name}", {**own, **arguments})
        return text if status < _REFUSED else f"HTTP {status}: {text[:_SHOWN_CHARACTERS]}"

    async def close(self) -> None:
        await self._server.close()

    async def _send(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, text, _ = await self._server.send(method, path, body)
        if status in _BROKEN:
            raise InfraError(f"{self._server.url}{path} answered with status {status}: {text[:_SHOWN_CHARACTERS]}")
        return status, text


def _tools_of(openapi: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    schemas = openapi.get("components", {}).get("schemas", {})
    for path, methods in openapi["paths"].items():
        name, post = path.strip("/"), methods.get("post")
        if post is None or "/" in name or "{" in name or name in _NO_TOOLS:
            continue
        body = post.get("requestBody", {}).get("content", {}).get(_JSON, {}).get("schema", {})
        description = post.get("description") or post.get("summary") or ""
        parameters = _resolved(body, schemas, ()) or {"type": "object", "properties": {}}
        yield {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _resolved(schema: Any, schemas: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """Returns a schema with its references inlined; a recursive reference becomes any object."""
    if isinstance(schema, list):
        return [_resolved(each, schemas, within) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(reference := schema.get("$ref"), str):
        name = reference.rpartition("/")[2]
        return {"type": "object"} if name in within else _resolved(schemas[name], schemas, (*within, name))
    return {key: _resolved(value, schemas, within) for key, value in schema.items()}


class ReActSolver:
    """Lets a model call tools until it answers without a call.

    Args:
        use_sandbox_tools: not supported; use a ``SandboxEnv``, which has a sandbox.
        max_turns: maximum number of responses; a problem that needs more responses counts as wrong.
        generation: sampling parameters that override the client's.
        tool_timeout: seconds per tool call; the model is told about a timeout.
        response_mode: ``last_message``, or ``all_messages`` for the texts of all turns.
    """

    def __init__(
        self,
        client: Any,
        http_backend: ToolBackend | None = None,
        use_sandbox_tools: bool = False,
        max_turns: int = 50,
        system_prompt: str | None = None,
        generation: Mapping[str, Any] | None = None,
        tool_timeout: float = 180.0,
        max_output_chars: int = 16384,
        response_mode: str = "last_message",
    ) -> None:
        if use_sandbox_tools:
            raise ConfigError(
                "use_sandbox_tools is not supported: use an environment with a sandbox. See docs/guides/sandboxes.md"
            )
        if response_mode not in _MODES:
            raise ConfigError(f"Unknown response_mode {response_mode!r}. Choose one of: {', '.join(_MODES)}")
        self.client = client
        self.system_prompt = system_prompt
        self.max_turns = max_turns
        self._backend = http_backend
        self._generation = dict(generation or {})
        self._tool_timeout = tool_timeout
        self._max_output_chars = max_output_chars
        self._takes_all = response_mode == "all_messages"
        self.settings = {
            "max_turns": max_turns,
            "generation": self._generation,
            "tool_timeout": tool_timeout,
            "max_output_chars": max_output_chars,
            "response_mode": response_mode,
        }

    async def solve(self, task: SeedResult) -> SolveResult:
        messages: list[dict[str, Any]] = messages_of(task, self.system_prompt)
        first_new, answers = len(messages), list[ToolCallingResponse]()
        tools = await self._backend.list_tools() if self._backend else []
        while len(answers) < self.max_turns:
            answer = await self.client.chat_with_tools(messages, tools, **self._generation)
            answers.append(answer)
            messages.append(_message(answer))
            if not answer.tool_calls:
                break
            messages += await asyncio.gather(*(self._called(call) for call in answer.tool_calls))
        total = _total(answers)
        if not answers or answers[-1].tool_calls:
            return SolveResult(
                "", total, messages[first_new:], None, {"error_category": "turn_budget_exhausted"},
                f"no answer after {self.max_turns} turns", ErrorKind.GRACEFUL,
            )  # fmt: skip
        texts = [answer.content for answer in answers if answer.content] if self._takes_all else [answers[-1].content]
        return SolveResult("\n\n".join(texts), total, messages[first_new:])

    async def close(self) -> None:
        await self.client.close()
        if (close := getattr(self._backend, "close", None)) is not None:
            await close()

    async def _called(self, call: ToolCallInfo) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._tool_timeout):
                text = await self._output(call)
        except InfraError:
            raise
        except Exception as error:  # noqa: BLE001 - tools are user code, and the model may do better
            text = f"Error: {type(error).__name__}: {error}"
        return {"role": "tool", "tool_call_id": call.id, "content": text[: self._max_output_chars]}

    async def _output(self, call: ToolCallInfo) -> str:
        if self._backend is None or set(call.arguments) == {"raw"}:
            raise ValueError("there is no such tool, or its arguments are not a JSON object")
        found = await self._backend.call_tool(call.name, call.arguments)
        return found if isinstance(found, str) else json.dumps(found, default=str)


def _message(answer: ToolCallingResponse) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)} for call in answer.tool_calls]
    return {"role": "assistant", "content": answer.content, **({"tool_calls": calls} if calls else {})}


def _total(answers: list[ToolCallingResponse]) -> ModelResponse | None:
    if not answers:
        return None
    last, each = answers[-1].model_response, [answer.model_response for answer in answers]
    for name in COUNTS:
        counts = [getattr(one, name) for one in each]
        setattr(last, name, sum(counts) if None not in counts else None)
    last.latency_ms = sum(one.latency_ms for one in each)
    return last
