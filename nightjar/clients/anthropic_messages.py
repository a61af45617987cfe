"""Anthropic's Messages API."""

from __future__ import annotations

import json
import time
from typing import Any, TypeAlias

import anthropic
from anthropic import AsyncAnthropic
from anthropic.types import Message as AnthropicMessage

from nightjar.clients.aiohttp_sender import SendsByAiohttp
from nightjar.clients.answers import field_of, text_of, usage_of
from nightjar.clients.anthropic_prompt import ANTHROPIC_CONTENT_FIELD, native_prompt
from nightjar.clients.config import ClientConfig, EndpointClientConfig, resolve_client_config
from nightjar.clients.sdk_client import SdkClient, call_sdk
from nightjar.errors import EmptyModelResponseError, InvalidModelResponseError
from nightjar.messages import FinishReason, Messages, Response, ResponseMessage, Tool, ToolCall, dump_message

AnthropicMessages: TypeAlias = list[dict[str, Any]]
AnthropicTool: TypeAlias = dict[str, Any]

DEFAULT_MAX_TOKENS = 4096
"""Asked for where ``max_tokens`` is not set: the protocol insists on a limit."""

_FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
_ORDER = ("thinking", "redacted_thinking", "text", "tool_use")
_ENDED_ON_PURPOSE = frozenset({"refusal", "max_tokens", "model_context_window_exceeded"})


class AiohttpAnthropic(SendsByAiohttp, AsyncAnthropic):
    """``AsyncAnthropic`` that sends JSON requests through aiohttp; its URL may end in ``/v1`` or not."""

    _sdk, _kind = anthropic, AsyncAnthropic

    @staticmethod
    def _address(config: EndpointClientConfig) -> str:
        return config.api_base_url.removesuffix("/v1")  # the SDK's routes begin with it


def setup_anthropic_client(config: ClientConfig) -> AsyncAnthropic:
    """Returns an SDK client of an endpoint; of replica number ``client_idx`` where it has several.

    Raises:
        MissingKeyError: the endpoint's key is not set.

    Example:
        >>> setup_anthropic_client(ClientConfig(api_base_url="http://localhost:8000/v1")).max_retries
        0
    """
    return AiohttpAnthropic(resolve_client_config(config))


class AnthropicMessagesClient(SdkClient[AsyncAnthropic, AnthropicMessages, AnthropicMessage, AnthropicTool]):
    """Asks an endpoint through Anthropic's Messages API, on the official SDK.

    The thinking of a model is kept in ``message.thinking_blocks``, signatures included, and is sent back with the next
    turn. Audio, which the protocol does not take, becomes the text ``[audio]``.
    """

    def setup_client(self, config: ClientConfig) -> AsyncAnthropic:
        """Makes the SDK client, with its own retries off."""
        return setup_anthropic_client(config)

    async def send(self, arguments: dict[str, Any]) -> AnthropicMessage:
        """Calls ``/v1/messages`` once."""
        response: AnthropicMessage = await call_sdk(self.client.messages.create, arguments)
        return response

    async def to_native_prompt(self, messages: Messages) -> tuple[AnthropicMessages, dict[str, Any]]:
        """Returns the messages as Anthropic writes them, and ``system``, the text of the system messages."""
        contents = (message.content for message in messages if isinstance(message.content, list))
        if any(field_of(part, "type") == "input_audio" for content in contents for part in content):
            self.warn_once("Anthropic's protocol takes no audio: '[audio]' stands in its place")
        prompt, system = native_prompt(messages)
        return prompt, {"system": system}

    async def to_native_tool(self, tool: Tool) -> AnthropicTool:
        """Returns a tool as Anthropic writes it."""
        return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}

    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments of one request, as the SDK's ``create`` takes them.

        ``stop`` becomes ``stop_sequences``; ``n`` is left out, as there is always one answer. ``max_tokens`` is 4,096
        where it is not set, with a warning.
        """
        if not arguments.get("system"):
            arguments.pop("system", None)
        arguments.pop("n", None)
        limit = arguments.pop("max_completion_tokens", None)
        if arguments.setdefault("max_tokens", limit) is None:
            self.warn_once(f"'max_tokens' is not set, but Anthropic needs it: {DEFAULT_MAX_TOKENS} is asked for")
            arguments["max_tokens"] = DEFAULT_MAX_TOKENS
        if stop := self._stop_sequences(arguments.pop("stop", None) or []):
            arguments["stop_sequences"] = stop
        return arguments

    def _stop_sequences(self, stop: str | list[str]) -> list[str]:
        wanted = [stop] if isinstance(stop, str) else list(stop)
        possible = [sequence for sequence in wanted if sequence.strip()]
        if len(possible) < len(wanted):
            self.warn_once("Anthropic takes no stop sequences of blanks alone: they are left out")
        return possible

    async def raise_from_native_response(self, response: AnthropicMessage) -> None:
        """Raises where there is no content, or nothing in it."""
        blocks = field_of(response, "content")
        if not (isinstance(blocks, list) and all(_is_block(block) for block in blocks)):
            said = field_of(response, "error") or response
            raise InvalidModelResponseError(f"expected a list of content blocks, found {str(said)[:200]!r}")
        has_said = any(field_of(block, "type") != "text" or field_of(block, "text") for block in blocks)
        if not (has_said or field_of(response, "stop_reason") in _ENDED_ON_PURPOSE):
            raise EmptyModelResponseError("the endpoint sent no text, thinking or tool call")

    async def from_native_response(self, response: AnthropicMessage) -> Response:
        """Returns the answer in Nightjar's form."""
        stop_reason = text_of(response, "stop_reason")
        finish_reason = _FINISH_REASONS.get(stop_reason)
        return Response(
            id=text_of(response, "id"),
            created=int(time.time()),
            model=text_of(response, "model"),
            usage=usage_of(response),
            message=ResponseMessage(
                **_said(response.content),
                finish_reason=finish_reason,
                is_truncated=finish_reason == "length",
            ),
        )


def _is_block(block: Any) -> bool:
    kind = field_of(block, "type")
    return isinstance(kind, str) and (kind != "text" or isinstance(field_of(block, "text"), str))


def _said(blocks: list[Any]) -> dict[str, Any]:
    """Returns a message's fields: text, thinking, tool calls; and the blocks as they came where these lose some."""
    kinds = [text_of(block, "type") for block in blocks]
    fields: dict[str, Any] = {
        "content": "".join(text_of(block, "text") for block in blocks if field_of(block, "type") == "text"),
        "reasoning_content": "".join(text_of(block, "thinking") for block in blocks) or None,
        "thinking_blocks": [kept for block in blocks if (kept := _thinking(block))] or None,
        "tool_calls": [_tool_call(block) for block in blocks if field_of(block, "type") == "tool_use"] or None,
    }
    if not _is_usual_order(kinds):
        fields[ANTHROPIC_CONTENT_FIELD] = [dump_message(block) for block in blocks]
    return fields


def _is_usual_order(kinds: list[str]) -> bool:
    """Says whether there is thinking first, then text, then tool calls, and nothing else."""
    ranks = [max(1, _ORDER.index(kind)) for kind in kinds if kind in _ORDER]
    return len(ranks) == len(kinds) and ranks == sorted(ranks)


def _thinking(block: Any) -> dict[str, Any] | None:
    """Returns thinking that can be sent back; without a signature it cannot."""
    kind = field_of(block, "type")
    if kind == "thinking" and (signature := text_of(block, "signature")):
        return {"type": kind, "thinking": text_of(block, "thinking"), "signature": signature}
    if kind == "redacted_thinking":
        return {"type": kind, "data": text_of(block, "data")}
    return None


def _tool_call(block: Any) -> ToolCall:
    arguments = json.dumps(field_of(block, "input", {}), separators=(",", ":"), ensure_ascii=False)
    return ToolCall(id=field_of(block, "id"), name=field_of(block, "name"), arguments=arguments)
