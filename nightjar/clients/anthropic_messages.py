"""Anthropic's Messages API (https://docs.anthropic.com/en/api/messages).

Only users and assistants have messages. The system prompt is a separate argument, all tool results of one turn are one
user message, and thinking must be sent back unchanged.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote_to_bytes

from nightjar.clients.answers import arguments_of, field_of, text_of, usage_of, without_text, wrong_field
from nightjar.clients.config import EndpointClientConfig
from nightjar.clients.endings import MESSAGES, Ending, ended
from nightjar.clients.endpoint_client import EndpointClient
from nightjar.clients.transport import Endpoint
from nightjar.core.messages import (
    Message,
    Messages,
    Response,
    ResponseMessage,
    Tool,
    ToolCall,
    content_text,
    dump_message,
)
from nightjar.errors import InvalidModelResponseError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message as AnthropicMessage

AnthropicMessages: TypeAlias = list[dict[str, Any]]
Block: TypeAlias = dict[str, Any]

ANTHROPIC_CONTENT_FIELD = "anthropic_content"
"""The field of a message that keeps the model's output if the other fields cannot represent it."""

DEFAULT_MAX_TOKENS = 4096
"""The limit of tokens if ``max_tokens`` is not set, because the protocol requires a limit."""

_API_VERSION = "2026-10-21"
_ORDER = ("thinking", "redacted_thinking", "text", "tool_use")
_CHOICES = {"required": "any"}
"""OpenAI's choices of tools that have another name here."""
_AUDIO = "[audio]"
_NO_OBJECT = "INVALID_JSON"  # the key that Anthropic's documentation suggests
_DEFAULT_MEDIA_TYPE = "image/png"


class AnthropicEndpoint(Endpoint):
    def __init__(self, config: EndpointClientConfig) -> None:
        super().__init__(config)
        self.base_url = f"{self.base_url.removesuffix('/v1')}/v1"

    def usual_headers(self) -> Mapping[str, str]:
        return {"anthropic-version": _API_VERSION, **super().usual_headers()}


class AnthropicMessagesClient(EndpointClient["AsyncAnthropic", AnthropicMessages, "AnthropicMessage", dict[str, Any]]):
    """Anthropic's Messages API. The base URL may end with ``/v1``.

    ``message.thinking_blocks`` keeps the model's thinking with its signatures, for the next turn. Audio, which the
    protocol does not have, becomes the text ``[audio]``.
    """

    sdk, route, endings = "anthropic", "/messages", MESSAGES

    def make_endpoint(self, config: EndpointClientConfig) -> Endpoint:
        return AnthropicEndpoint(config)

    def make_sdk_client(self, config: EndpointClientConfig, key: str | None = None) -> AsyncAnthropic:
        from nightjar.clients.anthropic_sdk import AiohttpAnthropic

        return AiohttpAnthropic(config, key)

    async def to_native_prompt(self, messages: Messages) -> tuple[AnthropicMessages, dict[str, Any]]:
        contents = (message.content for message in messages if isinstance(message.content, list))
        if any(field_of(part, "type") == "input_audio" for content in contents for part in content):
            self.warn_once("Anthropic's protocol has no audio: audio is replaced by the text '[audio]'")
        prompt, system = _native_prompt(messages)
        return prompt, {"system": system}

    async def to_native_tool(self, tool: Tool) -> dict[str, Any]:
        return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}

    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Renames ``stop`` to ``stop_sequences``, and removes ``n``, because there is always one response.

        ``tool_choice`` and ``parallel_tool_calls`` may have OpenAI's form.
        """
        if not arguments.get("system"):
            arguments.pop("system", None)
        arguments.pop("n", None)
        if arguments.pop("seed", None) is not None:
            self.warn_once("Anthropic has no seed: 'seed' is not sent, so another run gives other results")
        limit = arguments.pop("max_completion_tokens", None)
        if arguments.setdefault("max_tokens", limit) is None:
            self.warn_once(f"Anthropic requires 'max_tokens', which is not set: {DEFAULT_MAX_TOKENS} is used")
            arguments["max_tokens"] = DEFAULT_MAX_TOKENS
        if stop := self._stop_sequences(arguments.pop("stop", None) or []):
            arguments["stop_sequences"] = stop
        is_single = arguments.pop("parallel_tool_calls", None) is False and bool(arguments.get("tools"))
        if choice := _tool_choice(arguments.pop("tool_choice", None), is_single=is_single):
            arguments["tool_choice"] = choice
        return arguments

    def _stop_sequences(self, stop: str | list[str]) -> list[str]:
        wanted = [stop] if isinstance(stop, str) else list(stop)
        possible = [sequence for sequence in wanted if sequence.strip()]
        if len(possible) < len(wanted):
            self.warn_once("Anthropic does not accept blank stop sequences: blank ones are removed")
        return possible

    async def raise_from_native_response(self, response: AnthropicMessage) -> None:
        blocks = field_of(response, "content")
        if not isinstance(blocks, list):
            raise wrong_field("content", blocks, "a list of blocks")
        for number, block in enumerate(blocks):
            _check_block(block, number)
        ending = self.check_ending(field_of(response, "stop_reason"))
        kinds = [field_of(block, "type") for block in blocks]
        if kinds and not any(kind in _ORDER for kind in kinds):
            raise InvalidModelResponseError(f"expected text, thinking or a tool call, found {', '.join(kinds)[:200]}")
        has_said = any(field_of(block, "type") != "text" or field_of(block, "text") for block in blocks)
        if not (has_said or ending is Ending.TRUNCATED):
            raise without_text()

    async def from_native_response(self, response: AnthropicMessage) -> Response:
        reason = field_of(response, "stop_reason")
        said = _said(field_of(response, "content"))
        return Response(
            id=text_of(response, "id"),
            created=int(time.time()),
            model=text_of(response, "model"),
            usage=usage_of(response),
            message=ResponseMessage(**said, **ended(reason, MESSAGES, has_calls=bool(said["tool_calls"]))),
        )


def _tool_choice(choice: Any, *, is_single: bool) -> dict[str, Any] | None:
    """Converts OpenAI's choice of tools. A choice in Anthropic's form is left unchanged."""
    if isinstance(choice, dict) and choice.get("type") == "function":
        choice = {"type": "tool", "name": (choice.get("function") or choice)["name"]}
    if isinstance(choice, str):
        choice = {"type": _CHOICES.get(choice, choice)}
    if is_single:
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return cast("dict[str, Any] | None", choice)


def _check_block(block: Any, number: int) -> None:
    kind = field_of(block, "type")
    if not isinstance(kind, str):
        raise wrong_field(f"content[{number}].type", kind, "a text")
    if kind == "text" and not isinstance(text := field_of(block, "text"), str):
        raise wrong_field(f"content[{number}].text", text, "a text")
    if kind == "tool_use" and not isinstance(name := field_of(block, "name"), str):
        raise wrong_field(f"content[{number}].name", name, "a text")


def _said(blocks: list[Any]) -> dict[str, Any]:
    """Returns the fields of a message, and also the blocks if the fields cannot represent the blocks."""
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
    ranks = [max(1, _ORDER.index(kind)) for kind in kinds if kind in _ORDER]
    return len(ranks) == len(kinds) and ranks == sorted(ranks)


def _thinking(block: Any) -> dict[str, Any] | None:
    """Returns the thinking in a block if it can be sent back, which requires a signature."""
    kind = field_of(block, "type")
    if kind == "thinking" and (signature := text_of(block, "signature")):
        return {"type": kind, "thinking": text_of(block, "thinking"), "signature": signature}
    if kind == "redacted_thinking":
        return {"type": kind, "data": text_of(block, "data")}
    return None


def _tool_call(block: Any) -> ToolCall:
    return ToolCall(
        id=text_of(block, "id"), name=field_of(block, "name"), arguments=arguments_of(field_of(block, "input"))
    )


def _native_prompt(messages: Sequence[Message]) -> tuple[list[dict[str, Any]], str]:
    system: list[str] = []
    prompt: list[dict[str, Any]] = []
    results: list[Block] | None = None
    for message in messages:
        if message.role == "system":
            system.append(_plain_text(message.content))
        elif message.role == "tool":
            if results is None:
                results = []
                prompt.append({"role": "user", "content": results})
            results.append(_tool_result(message))
        else:
            results = None
            is_model = message.role == "assistant"
            content = _model_turn(message) if is_model else _native_content(message.content)
            if content or not is_model:  # an empty turn of the model is left out
                prompt.append({"role": "assistant" if is_model else "user", "content": content})
    return prompt, "\n\n".join(system)


def _model_turn(message: Any) -> str | list[Block]:
    if kept := _kept_content(message):
        return kept
    thinking = [block for block in message.thinking_blocks or () if _is_whole_thinking(block)]
    if not (thinking or message.tool_calls):
        return message.content if isinstance(message.content, str) else _plain_text(message.content)
    texts = [{"type": "text", "text": text} for text in _texts(message.content)]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call.arguments)}
        for call in message.tool_calls or ()
    ]
    return [*thinking, *texts, *calls]


def _kept_content(message: Any) -> list[Block] | None:
    """Returns the kept output of the model, or None if the environment has changed the message."""
    kept: list[Block] | None = (message.model_extra or {}).get(ANTHROPIC_CONTENT_FIELD)
    if not kept:
        return None
    said = "".join(block["text"] for block in kept if block["type"] == "text")
    calls = [text_of(block, "id") for block in kept if block["type"] == "tool_use"]
    is_unchanged = said == content_text(message.content) and calls == [call.id for call in message.tool_calls or ()]
    return kept if is_unchanged else None


def _is_whole_thinking(block: Any) -> bool:
    kind = field_of(block, "type")
    if kind == "thinking":
        return isinstance(field_of(block, "thinking"), str) and bool(field_of(block, "signature"))
    return bool(kind == "redacted_thinking" and field_of(block, "data"))


def _arguments(text: str) -> dict[str, Any]:
    """Parses the arguments of a tool call. The protocol allows only objects, so other values are wrapped."""
    try:
        arguments = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {_NO_OBJECT: text}


def _tool_result(message: Any) -> Block:
    content = _native_content(message.content)
    if not isinstance(content, str) and all(block["type"] == "text" for block in content):
        content = " ".join(block["text"] for block in content)
    return {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}


def _native_content(content: Any) -> str | list[Block]:
    return content if isinstance(content, str) else _blocks(content)


def _blocks(content: Any) -> list[Block]:
    """Converts content to blocks. Empty texts are removed, because the API refuses empty texts."""
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks = [_block(dump_message(part)) for part in content]
    return [block for block in blocks if block.get("text") != ""]


def _block(part: dict[str, Any]) -> Block:
    kind = part.get("type")
    if kind == "image_url":
        return {"type": "image", "source": _image_source(part["image_url"]["url"])}
    if kind == "input_audio":
        return {"type": "text", "text": _AUDIO}
    return part


def _image_source(url: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url.removeprefix("data:").partition(",")
    media_type, *flags = head.split(";")
    if "base64" not in flags:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return {"type": "base64", "media_type": media_type or _DEFAULT_MEDIA_TYPE, "data": data}


def _plain_text(content: Any) -> str:
    return " ".join(_texts(content))


def _texts(content: Any) -> list[str]:
    return [block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in _blocks(content)]
