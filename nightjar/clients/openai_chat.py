"""The client for OpenAI's chat completions, on any endpoint with this protocol, and the base of all OpenAI clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from nightjar.clients.answers import field_of, reasoning_of, tokens_of, usage_of, without_text
from nightjar.clients.client import MessagesT, ResponseT, ToolT
from nightjar.clients.config import EndpointClientConfig
from nightjar.clients.endpoint_client import EndpointClient
from nightjar.clients.protocols import PROTOCOLS
from nightjar.core.messages import (
    Message,
    Messages,
    Response,
    ResponseMessage,
    Tool,
    ToolCall,
    content_text,
    dump_messages,
)
from nightjar.errors import InvalidModelResponseError

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

OpenAIChatMessages: TypeAlias = list[dict[str, Any]]
OpenAITool: TypeAlias = dict[str, Any]

_OF_OTHER_PROTOCOLS = frozenset(protocol.kept_field for protocol in PROTOCOLS.values())
_FINISH_REASONS = frozenset({"stop", "length", "tool_calls"})


class OpenAIClient(EndpointClient["AsyncOpenAI", MessagesT, ResponseT, ToolT]):
    """Sends requests without OpenAI's SDK, unless an SDK client is given or a subclass sets one up."""

    sdk = "openai"

    def make_sdk_client(self, config: EndpointClientConfig, key: str | None = None) -> AsyncOpenAI:
        from nightjar.clients.openai_sdk import AiohttpOpenAI

        return AiohttpOpenAI(config, key)


def native_function(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return function if tool.strict is None else {**function, "strict": tool.strict}


class OpenAIChatCompletionsClient(OpenAIClient[OpenAIChatMessages, "ChatCompletion", OpenAITool]):
    """Chat completions."""

    route = "/chat/completions"

    async def to_native_prompt(self, messages: Messages) -> tuple[OpenAIChatMessages, dict[str, Any]]:
        return [_native_message(message) for message in messages], {}

    async def to_native_tool(self, tool: Tool) -> OpenAITool:
        return {"type": "function", "function": native_function(tool)}

    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Sends ``max_tokens`` as ``max_completion_tokens``. With audio, the default of ``modalities`` is text."""
        if "max_tokens" in arguments:
            arguments["max_completion_tokens"] = arguments.pop("max_tokens")
        if "modalities" not in arguments and has_part(arguments["messages"], "input_audio"):
            arguments["modalities"] = ["text"]
        return arguments

    async def raise_from_native_response(self, response: ChatCompletion) -> None:
        choice = only_choice(response)
        message = field_of(choice, "message")
        if message is None:
            raise InvalidModelResponseError("the endpoint sent a choice without a message")
        has_said = content_text(field_of(message, "content")) or field_of(message, "refusal") or reasoning_of(message)
        reason = field_of(choice, "finish_reason")
        was_cut = reason == "length"  # another try would cost the same and be cut again
        if not (has_said or field_of(message, "tool_calls") or was_cut):
            raise without_text(reason)

    async def from_native_response(self, response: ChatCompletion) -> Response:
        """Converts a response. If there is no other text, the text is the refusal."""
        choice = field_of(response, "choices")[0]
        message, finish_reason = field_of(choice, "message"), field_of(choice, "finish_reason")
        return Response(
            id=field_of(response, "id") or "",
            created=field_of(response, "created") or 0,
            model=field_of(response, "model") or "",
            usage=usage_of(response),
            message=ResponseMessage(
                content=field_of(message, "content") or field_of(message, "refusal") or field_of(message, "content"),
                reasoning_content=reasoning_of(message),
                tool_calls=_tool_calls(message),
                finish_reason=finish_reason if finish_reason in _FINISH_REASONS else None,
                is_truncated=finish_reason == "length",
                tokens=tokens_of(response),
            ),
        )


def has_part(prompt: OpenAIChatMessages, *kinds: str) -> bool:
    contents = [content for message in prompt if isinstance(content := message.get("content"), list)]
    return any(part.get("type") in kinds for content in contents for part in content)


def only_choice(response: Any) -> Any:
    choices = field_of(response, "choices")
    if isinstance(choices, list) and len(choices) == 1:
        return choices[0]
    found = len(choices) if isinstance(choices, list) else "none"
    said = field_of(response, "error")  # some gateways send their errors with status 200
    raise InvalidModelResponseError(f"expected one choice, found {found}" + (f": {said}" if said else ""))


def _native_message(message: Message | dict[str, Any]) -> dict[str, Any]:
    """Converts a message. Written for speed, because every turn converts the whole conversation again."""
    if isinstance(message, dict):
        return message
    fields = message.__dict__
    if fields["role"] == "assistant":
        native = _native_assistant(fields)
    else:
        native = fields.copy()
        if type(native["content"]) is not str:
            native["content"] = dump_messages(native["content"])
        if native["role"] == "text":
            native["role"] = "user"
    for name, value in (message.__pydantic_extra__ or {}).items():
        if value is not None and name not in _OF_OTHER_PROTOCOLS:
            native[name] = value
    return native


def _native_assistant(fields: dict[str, Any]) -> dict[str, Any]:
    native: dict[str, Any] = {"role": "assistant"}
    if fields["content"] is not None:
        native["content"] = dump_messages(fields["content"])
    if fields["reasoning_content"] is not None:
        native["reasoning_content"] = fields["reasoning_content"]
    if fields["tool_calls"]:
        native["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in fields["tool_calls"]
        ]
    return native


def _tool_calls(message: Any) -> list[ToolCall] | None:
    return [
        ToolCall(
            id=field_of(call, "id") or "",
            name=field_of(function, "name"),
            arguments=field_of(function, "arguments") or "",
        )
        for call in field_of(message, "tool_calls") or []
        if (function := field_of(call, "function"))
    ] or None
