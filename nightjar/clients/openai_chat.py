"""The client for OpenAI's chat completions, on any endpoint with this protocol, and the base of all OpenAI clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from nightjar.clients.answers import (
    arguments_of,
    count_of,
    field_of,
    reasoning_of,
    text_of,
    texts_of,
    tokens_of,
    usage_of,
    without_text,
    wrong_field,
)
from nightjar.clients.client import MessagesT, ResponseT, ToolT
from nightjar.clients.config import EndpointClientConfig
from nightjar.clients.endings import CHAT, Ending, ended
from nightjar.clients.endpoint_client import EndpointClient
from nightjar.clients.failures import refuses_field
from nightjar.clients.protocols import PROTOCOLS
from nightjar.core.messages import (
    Message,
    Messages,
    Response,
    ResponseMessage,
    Tool,
    ToolCall,
    dump_messages,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

OpenAIChatMessages: TypeAlias = list[dict[str, Any]]
OpenAITool: TypeAlias = dict[str, Any]

_LIMITS = ("max_completion_tokens", "max_tokens")
"""The names of the limit of generated tokens: OpenAI's newer models know only the first, many servers the second."""
_TEXT_PARTS = frozenset({"text", "output_text", "thinking"})
_OF_OTHER_PROTOCOLS = frozenset(protocol.kept_field for protocol in PROTOCOLS.values())


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

    route, endings = "/chat/completions", CHAT
    _limit = _LIMITS[0]

    async def to_native_prompt(self, messages: Messages) -> tuple[OpenAIChatMessages, dict[str, Any]]:
        return [_native_message(message) for message in messages], {}

    async def to_native_tool(self, tool: Tool) -> OpenAITool:
        return {"type": "function", "function": native_function(tool)}

    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Renames the limit to that which the server knows. With audio, the default of ``modalities`` is text."""
        for name in _LIMITS:
            if name in arguments:
                arguments[self._limit] = arguments.pop(name)
        if "modalities" not in arguments and has_part(arguments["messages"], "input_audio"):
            arguments["modalities"] = ["text"]
        return arguments

    async def send(self, arguments: dict[str, Any]) -> ChatCompletion:
        """Sends one request, and again with the other name of the limit if the server refuses the first by its name."""
        try:
            return await super().send(arguments)
        except Exception as error:
            sent = next((name for name in _LIMITS if name in arguments), None)
            if sent is None or not refuses_field(error, sent):
                raise
        other = next(name for name in _LIMITS if name != sent)
        limit = arguments.pop(sent)
        response = await super().send({**arguments, other: limit})
        if self._limit == sent:  # not yet changed by another request
            self._limit = other
            self.logger.info("The endpoint does not take %s. From now on, %s is sent.", sent, other)
        return response

    def check_limit(self, arguments: Mapping[str, Any], response: Any) -> str | None:
        if (ignored := super().check_limit(arguments, response)) == self._limit == _LIMITS[0]:
            self._limit = _LIMITS[1]  # older servers know only this name, and ignore the other
        return ignored

    async def raise_from_native_response(self, response: ChatCompletion) -> None:
        choice = first_choice(response)
        message = field_of(choice, "message")
        if message is None:
            raise wrong_field("choices[0].message", message, "an object")
        ending = self.check_ending(field_of(choice, "finish_reason"))
        content, reasoning = _said(message)
        calls = _tool_calls(message)
        if reasoning and not (content or calls) and ending is Ending.ANSWERED:
            self.warn_once(
                "The endpoint put a whole response into its reasoning, and sent no answer. If this happens often, set "
                "the server's reasoning parser for this model (vLLM and SGLang: --reasoning-parser)."
            )
        if not (content or reasoning or calls or ending is Ending.TRUNCATED):  # another try would be cut again
            raise without_text()

    async def from_native_response(self, response: ChatCompletion) -> Response:
        """Converts a response. If there is no other text, the text is the refusal."""
        choice = field_of(response, "choices")[0]
        message, reason = field_of(choice, "message"), field_of(choice, "finish_reason")
        content, reasoning = _said(message)
        calls = _tool_calls(message)
        return Response(
            id=text_of(response, "id"),
            created=count_of(response, "created"),
            model=text_of(response, "model"),
            usage=usage_of(response),
            message=ResponseMessage(
                content=content,
                reasoning_content=reasoning,
                tool_calls=calls or None,
                **ended(reason, CHAT, has_calls=bool(calls)),
                tokens=tokens_of(response),
            ),
        )


def has_part(prompt: OpenAIChatMessages, *kinds: str) -> bool:
    contents = [content for message in prompt if isinstance(content := message.get("content"), list)]
    return any(part.get("type") in kinds for content in contents for part in content)


def first_choice(response: Any) -> Any:
    choices = field_of(response, "choices")
    if isinstance(choices, list) and choices:
        return choices[0]
    raise wrong_field("choices", choices, "a list with one choice")


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


def _said(message: Any) -> tuple[Any, str | None]:
    """Returns the content and the reasoning. Content in text parts becomes one text; thinking parts are reasoning."""
    content, reasoning = field_of(message, "content"), reasoning_of(message)
    if isinstance(content, list):
        kinds = [field_of(part, "type") for part in content]
        if all(isinstance(part, str) or kind in _TEXT_PARTS for part, kind in zip(content, kinds, strict=True)):
            thought = [texts_of(field_of(part, "thinking")) for part in content]
            content = "".join(texts_of(part) for part in content)
            reasoning = reasoning or "".join(thought) or None
    elif content is not None and not isinstance(content, str):
        raise wrong_field("choices[0].message.content", content, "a text or a list of parts")
    return content or text_of(message, "refusal") or content, reasoning


def _tool_calls(message: Any) -> list[ToolCall]:
    calls = field_of(message, "tool_calls") or []
    if not isinstance(calls, list):
        raise wrong_field("choices[0].message.tool_calls", calls, "a list")
    functions = [(call, field_of(call, "function")) for call in calls]
    if not calls:  # the form before tools
        functions = [(None, field_of(message, "function_call"))]
    return [_tool_call(call, function, number) for number, (call, function) in enumerate(functions) if function]


def _tool_call(call: Any, function: Any, number: int) -> ToolCall:
    name = field_of(function, "name")
    if not isinstance(name, str):
        raise wrong_field(f"choices[0].message.tool_calls[{number}].function.name", name, "a text")
    return ToolCall(id=text_of(call, "id"), name=name, arguments=arguments_of(field_of(function, "arguments")))
