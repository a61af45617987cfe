"""OpenAI chat completions, and every endpoint that speaks the same protocol."""

from __future__ import annotations

from typing import Any, TypeAlias

from openai.types.chat import ChatCompletion

from nightjar.clients.answers import field_of, reasoning_of, tokens_of, usage_of
from nightjar.clients.openai_client import OpenAIClient, native_function
from nightjar.errors import EmptyModelResponseError, InvalidModelResponseError
from nightjar.messages import Message, Messages, Response, ResponseMessage, Tool, ToolCall, content_text, dump_messages

OpenAIChatMessage: TypeAlias = dict[str, Any]
OpenAIChatMessages: TypeAlias = list[OpenAIChatMessage]
OpenAIChatResponse: TypeAlias = ChatCompletion
OpenAITool: TypeAlias = dict[str, Any]

_OF_OTHER_PROTOCOLS = frozenset({"openai_responses_output", "anthropic_content"})
_FINISH_REASONS = frozenset({"stop", "length", "tool_calls"})


class OpenAIChatCompletionsClient(OpenAIClient[OpenAIChatMessages, OpenAIChatResponse, OpenAITool]):
    """Asks an endpoint for chat completions, through the official SDK."""

    route, answer_type = "/chat/completions", ChatCompletion

    async def to_native_prompt(self, messages: Messages) -> tuple[OpenAIChatMessages, dict[str, Any]]:
        """Returns the messages as OpenAI writes them."""
        return [_native_message(message) for message in messages], {}

    async def to_native_tool(self, tool: Tool) -> OpenAITool:
        """Returns a tool as OpenAI writes it."""
        return {"type": "function", "function": native_function(tool)}

    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments of one request, as the SDK's ``create`` takes them.

        ``max_tokens`` is sent under its name of today, ``max_completion_tokens``. Where the prompt has audio,
        text is asked for, unless ``modalities`` says otherwise.
        """
        if "max_tokens" in arguments:
            arguments["max_completion_tokens"] = arguments.pop("max_tokens")
        if "modalities" not in arguments and has_part(arguments["messages"], "input_audio"):
            arguments["modalities"] = ["text"]
        return arguments

    async def raise_from_native_response(self, response: OpenAIChatResponse) -> None:
        """Raises where there is not exactly one choice, or nothing in it."""
        choice = only_choice(response)
        message = field_of(choice, "message")
        if message is None:
            raise InvalidModelResponseError("the endpoint sent a choice without a message")
        has_said = content_text(field_of(message, "content")) or field_of(message, "refusal") or reasoning_of(message)
        was_cut = field_of(choice, "finish_reason") == "length"  # another try would pay for the same
        if not (has_said or field_of(message, "tool_calls") or was_cut):
            raise EmptyModelResponseError("the endpoint sent no text, reasoning or tool call")

    async def from_native_response(self, response: OpenAIChatResponse) -> Response:
        """Returns the answer in Nightjar's form; a refusal is the text where there is no other."""
        choice = response.choices[0]
        message, finish_reason = choice.message, choice.finish_reason
        return Response(
            id=response.id or "",
            created=response.created or 0,
            model=response.model or "",
            usage=usage_of(response),
            message=ResponseMessage(
                content=field_of(message, "content") or field_of(message, "refusal") or message.content,
                reasoning_content=reasoning_of(message),
                tool_calls=_tool_calls(message),
                finish_reason=finish_reason if finish_reason in _FINISH_REASONS else None,
                is_truncated=finish_reason == "length",
                tokens=tokens_of(response),
            ),
        )


def has_part(prompt: OpenAIChatMessages, *kinds: str) -> bool:
    """Says whether a message of several parts has one of these kinds."""
    contents = [content for message in prompt if isinstance(content := message.get("content"), list)]
    return any(part.get("type") in kinds for content in contents for part in content)


def only_choice(response: Any) -> Any:
    """Returns the one choice of a completion.

    Raises:
        InvalidModelResponseError: there is none, or more than one.
    """
    choices = field_of(response, "choices")
    if isinstance(choices, list) and len(choices) == 1:
        return choices[0]
    found = len(choices) if isinstance(choices, list) else "none"
    said = field_of(response, "error")  # some gateways send their errors with status 200
    raise InvalidModelResponseError(f"expected one choice, found {found}" + (f": {said}" if said else ""))


def _native_message(message: Message | dict[str, Any]) -> OpenAIChatMessage:
    """Returns a message as OpenAI writes it.

    A conversation is converted anew at every turn, so this is written for speed: well under a microsecond, which is
    less than it takes to find out that a message kept from the turn before has not been changed since.
    """
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


def _native_assistant(fields: dict[str, Any]) -> OpenAIChatMessage:
    native: dict[str, Any] = {"role": "assistant"}
    if fields["content"] is not None:
        native["content"] = dump_messages(fields["content"])
    if fields["reasoning_content"] is not None:
        native["reasoning_content"] = fields["reasoning_content"]
    if fields["tool_calls"]:
        native["tool_calls"] = [_native_tool_call(call) for call in fields["tool_calls"]]
    return native


def _native_tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool_calls(message: Any) -> list[ToolCall] | None:
    calls = [(call, function) for call in message.tool_calls or [] if (function := field_of(call, "function"))]
    return [
        ToolCall(
            id=field_of(call, "id") or "",
            name=field_of(function, "name"),
            arguments=field_of(function, "arguments") or "",
        )
        for call, function in calls
    ] or None
