"""``ReActSolver``, and the tools of a server for it.

A server lists its routes in ``/openapi.json``; every ``POST /NAME`` is a tool, except those of the protocol of
resources servers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from nightjar.compat.nemo.engine.model_client import ToolCallInfo, ToolCallingResponse
from nightjar.compat.nemo.observability import ModelResponse
from nightjar.compat.nemo.solvers.base import ErrorKind, SolveResult
from nightjar.core.calling.loops import PerLoop
from nightjar.environments.seeded.bridge import messages_of
from nightjar.environments.seeded.eval_environment import SeedResult
from nightjar.errors import ConfigError, InfraError

_NO_TOOLS = frozenset({"seed_session", "verify", "health", "run", "aggregate_metrics"})
_JSON = "application/json"
_SHOWN_CHARACTERS = 4096
_REFUSED = 400
_BROKEN = frozenset({502, 503, 504})
_MODES = ("last_message", "all_messages")
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens")


@dataclass
class ToolResult:
    """A tool's answer for the model; says whether the tool rejected the call."""

    content: str
    is_error: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


class ToolBackend(Protocol):
    """Lists and calls tools."""

    async def list_tools(self) -> list[dict[str, Any]]:
        """Returns the tools in OpenAI's form."""

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Calls a tool; the model receives exceptions as text."""


class HttpToolBackend:
    """The tools of a server, such as a resources server of NeMo Gym; ``session_id`` is added to calls without one."""

    def __init__(self, base_url: str, *, session_id: str | None = None, timeout: float = 180.0) -> None:
        self._url = base_url.rstrip("/")
        self._session_id = session_id
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._sessions = PerLoop(self._session, aiohttp.ClientSession.close)
        self._tools: list[dict[str, Any]] | None = None

    async def list_tools(self) -> list[dict[str, Any]]:
        """Returns the tools in OpenAI's form."""
        if self._tools is None:
            status, text = await self._send("GET", "openapi.json")
            try:
                self._tools = [*_tools_of(json.loads(text))]
            except (ValueError, AttributeError, TypeError, LookupError) as error:
                shown = text[:_SHOWN_CHARACTERS]
                raise InfraError(f"{self._url}/openapi.json lists no tools (status {status}): {shown}") from error
        return self._tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Calls a tool; raises ``InfraError`` if the server does not answer."""
        if all(tool["function"]["name"] != name for tool in await self.list_tools()):
            return ToolResult(f"There is no tool {name!r}", is_error=True)
        own = {} if self._session_id is None else {"session_id": self._session_id}
        status, text = await self._send("POST", name, {**own, **arguments})
        if status >= _REFUSED:
            return ToolResult(f"HTTP {status}: {text[:_SHOWN_CHARACTERS]}", is_error=True, metadata={"status": status})
        return ToolResult(text)

    async def close(self) -> None:
        """Closes the connections; they are reopened on use."""
        await self._sessions.close()

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar())

    async def _send(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        session, url = await self._sessions.get(), f"{self._url}/{path}"
        try:
            async with session.request(method, url, json=body) as answer:
                text, status = await answer.text(errors="replace"), answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise InfraError(f"{url} does not respond: {error or type(error).__name__}") from error
        if status in _BROKEN:
            raise InfraError(f"{url} answered with status {status}: {text[:_SHOWN_CHARACTERS]}")
        return status, text


def _tools_of(openapi: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the routes of POST requests as functions in OpenAI's form."""
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
        use_sandbox_tools: refused; an environment with a sandbox is a ``SandboxEnv``.
        max_turns: maximum number of responses; a problem that needs more counts as wrong.
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
                "use_sandbox_tools is not supported: use an environment with a sandbox. See docs/sandboxes.md"
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
        """Answers a problem."""
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
            error, details = f"no answer after {self.max_turns} turns", {"error_category": "turn_budget_exhausted"}
            kind = ErrorKind.GRACEFUL
            return SolveResult("", total, messages[first_new:], None, details, error, kind)
        texts = [answer.content for answer in answers if answer.content] if self._takes_all else [answers[-1].content]
        return SolveResult("\n\n".join(texts), total, messages[first_new:])

    async def close(self) -> None:
        """Closes the connections to the model and the tools; they are reopened on use."""
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
        if isinstance(found, ToolResult):
            return found.content
        return found if isinstance(found, str) else json.dumps(found, default=str)


def _message(answer: ToolCallingResponse) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)} for call in answer.tool_calls]
    return {"role": "assistant", "content": answer.content, **({"tool_calls": calls} if calls else {})}


def _total(answers: list[ToolCallingResponse]) -> ModelResponse | None:
    if not answers:
        return None
    last, each = answers[-1].model_response, [answer.model_response for answer in answers]
    for name in _COUNTS:
        counts = [getattr(one, name) for one in each]
        setattr(last, name, sum(counts) if None not in counts else None)
    last.latency_ms = sum(one.latency_ms for one in each)
    return last
