"""OpenAI chat completions, and every endpoint that speaks the same protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from openai import APIResponseValidationError, APIStatusError, AsyncOpenAI
from openai.types.chat import ChatCompletion
from pydantic import ValidationError

from nightjar.clients.client import Client
from nightjar.clients.config import ClientConfig
from nightjar.clients.openai_transport import AiohttpOpenAI
from nightjar.errors import EmptyModelResponseError, InvalidModelResponseError, OverlongPromptError
from nightjar.messages import (
    AssistantMessage,
    Message,
    Messages,
    Response,
    ResponseMessage,
    Tool,
    ToolCall,
    Usage,
    dump_message,
)
from nightjar.state import SamplingArgs

if TYPE_CHECKING:
    from openai._types import RequestOptions

OpenAIChatMessages: TypeAlias = list[dict[str, Any]]
OpenAITool: TypeAlias = dict[str, Any]

REASONING_FIELDS = ("reasoning", "reasoning_content", "reasoning_details")
"""Where servers put a model's reasoning; the first that is there counts."""

OVERLONG_PHRASES = (
    "this model's maximum context length is",
    "is longer than the model's context length",
    "is longer than the maximum model length",
    "exceeds the model's context length",
    "exceed the configured limit",
    "exceeds the configured limit",
    "exceeded model",
    "prompt_too_long",
    "prompt is too long",
    "context length",
    "context_length_exceeded",
    "maximum context",
)
"""How providers say that a prompt is too long, in lower case; the protocol has no code for it."""


class OpenAIChatCompletionsClient(Client[AsyncOpenAI, OpenAIChatMessages, ChatCompletion, OpenAITool]):
    """Asks an endpoint for chat completions, through the official SDK.

    Example:
        >>> config = ClientConfig(api_base_url="http://127.0.0.1:8000/v1")
        >>> client = OpenAIChatCompletionsClient(config)
    """

    def setup_client(self, config: ClientConfig) -> AsyncOpenAI:
        """Makes the SDK client, with its own retries off."""
        return AiohttpOpenAI(config)

    async def close(self) -> None:
        """Closes the connections."""
        await self.client.close()

    async def to_native_prompt(self, messages: Messages) -> tuple[OpenAIChatMessages, dict[str, Any]]:
        """Returns the messages as OpenAI writes them."""
        return [_native_message(message) for message in messages], {}

    async def to_native_tool(self, tool: Tool) -> OpenAITool:
        """Returns a tool as OpenAI writes it."""
        function: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        if tool.strict is not None:
            function["strict"] = tool.strict
        return {"type": "function", "function": function}

    async def get_native_response(
        self,
        prompt: OpenAIChatMessages,
        model: str,
        sampling_args: SamplingArgs,
        tools: list[OpenAITool] | None = None,
        **kwargs: Any,
    ) -> ChatCompletion:
        """Calls ``/chat/completions`` once.

        Raises:
            OverlongPromptError: the endpoint says that the prompt is too long.
            InvalidModelResponseError: the answer is not a chat completion.
            openai.OpenAIError: anything else, as the SDK raises it.
        """
        body, options = _request(prompt, model, {**sampling_args, **kwargs}, tools)
        try:
            return await self.client.post(
                "/chat/completions", cast_to=ChatCompletion, body=body, options=cast("RequestOptions", options)
            )
        except APIResponseValidationError as error:
            raise InvalidModelResponseError(f"Model {model!r} answered {error.message}") from error
        except APIStatusError as error:
            if _says_overlong(error):
                raise OverlongPromptError(f"Model {model!r}: {error.message}") from error
            raise

    async def raise_from_native_response(self, response: ChatCompletion) -> None:
        """Raises where there is not exactly one choice, or nothing in it."""
        choices = getattr(response, "choices", None)
        if not isinstance(choices, list) or len(choices) != 1:
            found = len(choices) if isinstance(choices, list) else "none"
            said = getattr(response, "error", None)  # some gateways send their errors with status 200
            raise InvalidModelResponseError(f"expected one choice, found {found}" + (f": {said}" if said else ""))
        message = getattr(choices[0], "message", None)
        if message is None:
            raise InvalidModelResponseError("the endpoint sent a choice without a message")
        was_cut = choices[0].finish_reason == "length"  # all tokens went elsewhere: another try would pay for the same
        if not (message.content or message.tool_calls or _reasoning(message) or was_cut):
            raise EmptyModelResponseError("the endpoint sent no text, reasoning or tool call")

    async def from_native_response(self, response: ChatCompletion) -> Response:
        """Returns the answer in Nightjar's form.

        Raises:
            InvalidModelResponseError: a field is of another type than the protocol says.
        """
        message, finish_reason = response.choices[0].message, response.choices[0].finish_reason
        try:
            return Response(
                id=response.id or "",
                created=response.created or 0,
                model=response.model or "",
                usage=_usage(response),
                message=ResponseMessage(
                    content=message.content,
                    reasoning_content=_reasoning(message),
                    tool_calls=_tool_calls(message),
                    finish_reason=finish_reason if finish_reason in {"stop", "length", "tool_calls"} else None,
                    is_truncated=finish_reason == "length",
                ),
            )
        except ValidationError as error:
            raise InvalidModelResponseError(f"the endpoint sent an answer of another shape: {error}") from error


def _native_message(message: Message) -> dict[str, Any]:
    native: dict[str, Any] = dump_message(message)
    if isinstance(message, AssistantMessage):
        native.pop("thinking_blocks", None)
        if message.tool_calls:
            native["tool_calls"] = [_native_tool_call(call) for call in message.tool_calls]
    return native


def _native_tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _request(
    prompt: OpenAIChatMessages,
    model: str,
    arguments: dict[str, Any],
    tools: list[OpenAITool] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits arguments as the SDK takes them into the request's body and its options."""
    options = {
        option: arguments.pop(name)
        for name, option in (
            ("extra_headers", "headers"),
            ("extra_body", "extra_json"),
            ("timeout", "timeout"),
        )
        if arguments.get(name)
    }
    arguments.pop("state", None)
    body = {key: value for key, value in arguments.items() if value is not None}
    if "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    body = {"model": model, "messages": prompt, **body}
    if tools:
        body["tools"] = tools
    return body, options


def _says_overlong(error: APIStatusError) -> bool:
    if error.status_code not in {400, 413}:
        return False
    text = f"{error.message} {error.response.text}".lower()
    return any(phrase in text for phrase in OVERLONG_PHRASES)


def _reasoning(message: Any) -> str | None:
    for field in REASONING_FIELDS:
        value = getattr(message, field, None)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            texts = [part.get("text") or part.get("summary") or "" for part in value]
            return "".join(texts) or None
    return None


def _tool_calls(message: Any) -> list[ToolCall] | None:
    calls = [call for call in message.tool_calls or [] if getattr(call, "function", None)]
    return [
        ToolCall(id=call.id or "", name=call.function.name, arguments=call.function.arguments or "") for call in calls
    ] or None


def _usage(response: ChatCompletion) -> Usage | None:
    usage = response.usage
    if usage is None:
        return None
    details = usage.completion_tokens_details
    return Usage(
        prompt_tokens=usage.prompt_tokens or 0,
        reasoning_tokens=(details.reasoning_tokens or 0) if details else 0,
        completion_tokens=usage.completion_tokens or 0,
        total_tokens=usage.total_tokens or 0,
    )
