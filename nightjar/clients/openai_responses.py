"""OpenAI's Responses API (https://platform.openai.com/docs/api-reference/responses/create).

Reasoning continues from turn to turn, because the model's output can be sent back unchanged. Parts of user messages are
named ``input_...``, and tool calls and their results are separate items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from nightjar.clients.answers import arguments_of, count_of, field_of, text_of, usage_of, without_text, wrong_field
from nightjar.clients.endings import RESPONSES, Ending, ended
from nightjar.clients.openai_chat import OpenAIClient, native_function
from nightjar.core.messages import (
    Messages,
    Response,
    ResponseMessage,
    Tool,
    ToolCall,
    content_text,
    dump_message,
)
from nightjar.errors import ConfigError

if TYPE_CHECKING:
    from openai.types.responses import Response as NativeResponse

OpenAIResponsesInput: TypeAlias = list[dict[str, Any]]

OPENAI_RESPONSES_OUTPUT_FIELD = "openai_responses_output"
"""The field of a message that keeps the model's output, item by item."""

_TOKEN_LIMITS = ("max_output_tokens", "max_tokens", "max_completion_tokens")
_SAID = {"output_text": "text", "refusal": "refusal"}


class OpenAIResponsesClient(OpenAIClient[OpenAIResponsesInput, "NativeResponse", dict[str, Any]]):
    """The Responses API.

    ``message.openai_responses_output`` keeps the model's output unchanged, including reasoning, for the next turn. If
    the endpoint stores nothing (``store: false``), add ``reasoning.encrypted_content`` to ``include``.
    """

    route, prompt_field, endings = "/responses", "input", RESPONSES

    async def to_native_prompt(self, messages: Messages) -> tuple[OpenAIResponsesInput, dict[str, Any]]:
        """Converts messages to items. Raises ``ConfigError`` for audio, which the protocol does not have."""
        return [item for message in messages for item in _ITEMS[message.role](message)], {}

    async def to_native_tool(self, tool: Tool) -> dict[str, Any]:
        return {"type": "function", **native_function(tool)}

    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Renames ``max_tokens`` and ``reasoning_effort``. Raises ``ConfigError`` for ``n`` and ``stop``.

        ``tool_choice`` and ``response_format`` may have the form of a chat completion.
        """
        if arguments.pop("n", 1) != 1:
            raise ConfigError("The Responses API gives one response: remove 'n' from the sampling arguments.")
        if arguments.pop("stop", None):
            raise ConfigError("The Responses API has no stop sequences: remove 'stop' from the sampling arguments.")
        limits = [arguments.pop(name) for name in _TOKEN_LIMITS if name in arguments]
        if limits:
            arguments["max_output_tokens"] = limits[0]
        if effort := arguments.pop("reasoning_effort", None):
            arguments["reasoning"] = {"effort": effort, **(arguments.get("reasoning") or {})}
        match arguments.get("tool_choice"):
            case {"type": "function", "function": {"name": name}}:
                arguments["tool_choice"] = {"type": "function", "name": name}
        if wanted := arguments.pop("response_format", None):
            schema = {"type": wanted.get("type"), **(wanted.get("json_schema") or {})}
            arguments["text"] = {"format": schema, **(arguments.get("text") or {})}
        arguments.pop("modalities", None)
        if arguments.pop("seed", None) is not None:
            self.warn_once("The Responses API has no seed: 'seed' is not sent, so another run gives other results")
        return arguments

    async def raise_from_native_response(self, response: NativeResponse) -> None:
        ending = self.check_ending(_reason(response))
        items = field_of(response, "output")
        if not isinstance(items, list):
            raise wrong_field("output", items, "a list of items")
        is_called_or_thought = any(field_of(item, "type") in {"function_call", "reasoning"} for item in items)
        if not (is_called_or_thought or _text(items) or ending is Ending.TRUNCATED):
            raise without_text()

    async def from_native_response(self, response: NativeResponse) -> Response:
        items = field_of(response, "output")
        calls = _tool_calls(items)
        return Response(
            id=text_of(response, "id"),
            created=count_of(response, "created_at"),
            model=text_of(response, "model"),
            usage=usage_of(response),
            message=ResponseMessage(
                content=_text(items),
                reasoning_content=_reasoning(items),
                tool_calls=calls or None,
                **ended(_reason(response), RESPONSES, has_calls=bool(calls)),
                **{OPENAI_RESPONSES_OUTPUT_FIELD: [dump_message(item) for item in items]},
            ),
        )


def _reason(response: Any) -> Any:
    """Returns why a response is incomplete, or else its status."""
    status = field_of(response, "status")
    why = field_of(field_of(response, "incomplete_details"), "reason")
    return why if why and status in {"incomplete", None} else status


def _text(items: Any) -> str | None:
    parts = [part for item in items if field_of(item, "type") == "message" for part in field_of(item, "content") or ()]
    texts = [text_of(part, _SAID[kind]) for part in parts if (kind := field_of(part, "type")) in _SAID]
    return "".join(texts) or None


def _reasoning(items: Any) -> str | None:
    texts = [
        text_of(part, "text")
        for item in items
        if field_of(item, "type") == "reasoning"
        for part in [*(field_of(item, "summary") or ()), *(field_of(item, "content") or ())]
    ]
    return "\n".join(texts) or None


def _tool_calls(items: Any) -> list[ToolCall]:
    return [_tool_call(item, number) for number, item in enumerate(items) if field_of(item, "type") == "function_call"]


def _tool_call(item: Any, number: int) -> ToolCall:
    name = field_of(item, "name")
    if not isinstance(name, str):
        raise wrong_field(f"output[{number}].name", name, "a text")
    call_id = text_of(item, "call_id") or text_of(item, "id")
    return ToolCall(id=call_id, name=name, arguments=arguments_of(field_of(item, "arguments")))


def _said_items(message: Any) -> list[dict[str, Any]]:
    role = "user" if message.role == "text" else message.role
    return [{"type": "message", "role": role, "content": _native_content(message.content)}]


def _tool_result(message: Any) -> list[dict[str, Any]]:
    content = message.content
    is_text = isinstance(content, str) or all(field_of(part, "type") == "text" for part in content)
    output = content_text(content) if is_text else _native_content(content)
    return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output}]


def _model_turn(message: Any) -> list[dict[str, Any]]:
    """Returns the kept output of the model, or the message itself if the environment has changed the message."""
    text = content_text(message.content)
    calls = message.tool_calls or ()
    kept = (message.model_extra or {}).get(OPENAI_RESPONSES_OUTPUT_FIELD)
    if kept and (_text(kept) or "") == text and _asked(_tool_calls(kept)) == _asked(calls):
        return [dump_message(item) for item in kept]
    items: list[dict[str, Any]] = [{"type": "message", "role": "assistant", "content": text}] if text else []
    return items + [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments} for call in calls
    ]


def _asked(calls: Iterable[ToolCall]) -> list[tuple[str, str]]:
    return [(call.id, call.arguments) for call in calls]


_ITEMS: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    **dict.fromkeys(("system", "user", "text"), _said_items),
    "tool": _tool_result,
    "assistant": _model_turn,
}


def _native_content(content: Any) -> Any:
    return [_native_part(part) for part in content] if isinstance(content, list) else content


def _native_part(part: Any) -> dict[str, Any]:
    raw: dict[str, Any] = dump_message(part)
    kind = raw.get("type")
    if kind == "text":
        return {"type": "input_text", "text": raw["text"]}
    if kind == "image_url":
        image = raw["image_url"]
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
    if kind == "input_audio":
        raise ConfigError("The Responses API takes no audio. Use the client type 'openai_chat_completions'.")
    return {"detail": "auto", **raw} if kind == "input_image" else raw
