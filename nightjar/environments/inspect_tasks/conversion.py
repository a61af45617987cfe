"""Converts messages, tools, sampling arguments and responses between Inspect and Nightjar."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.model._call_tools import parse_tool_call
from inspect_ai.tool import ToolChoice, ToolFunction, ToolInfo

from nightjar.core.messages import (
    AssistantMessage,
    Message,
    Response,
    SystemMessage,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
    content_text,
)
from nightjar.core.rollout.state import SamplingArgs
from nightjar.core.rollout.usage import usage_counts
from nightjar.errors import ConfigError

_SENT = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop_seqs": "stop",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "logit_bias": "logit_bias",
    "reasoning_effort": "reasoning_effort",
    "parallel_tool_calls": "parallel_tool_calls",
}
"""Fields of Inspect's ``GenerateConfig`` and the sampling arguments that they become."""
_SENT_OTHERWISE = {"top_k", "extra_body", "response_schema"}
_OF_INSPECT = {"system_message", "max_tool_output", "reasoning_history", "fail_on_refusal"}
"""Fields that Inspect itself applies."""
_REPLACED = {
    "max_retries", "timeout", "attempt_timeout", "stream_idle_timeout", "max_connections", "adaptive_connections",
    "internal_tools", "cache_prompt",
}  # fmt: skip
"""Fields without effect: Nightjar has its own limits, retries and pace."""
_TOKEN_LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens"}
_STOP_REASONS = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls"}


def unsupported_settings(config: GenerateConfig) -> list[str]:
    """Returns the names of settings that a config sets and Nightjar does not send, such as ``logprobs``."""
    known = {*_SENT, *_SENT_OTHERWISE, *_OF_INSPECT, *_REPLACED}
    wanted = config.model_dump(exclude_none=True)
    is_single = wanted.get("num_choices") == 1
    return sorted(name for name, value in wanted.items() if name not in known and value and not is_single)


def sampling_args_of(
    config: GenerateConfig, tools: Sequence[ToolInfo], tool_choice: ToolChoice, of_run: SamplingArgs
) -> SamplingArgs:
    """Returns the sampling arguments of a request. Those of the run win over those of the task and its solvers."""
    if unsupported := unsupported_settings(config):
        raise ConfigError(f"A solver or scorer sets {', '.join(unsupported)}, which Nightjar does not send")
    wanted = config.model_dump(exclude_none=True)
    args = {ours: wanted[theirs] for theirs, ours in _SENT.items() if theirs in wanted}
    if not tools:
        args.pop("parallel_tool_calls", None)
    elif tool_choice != "auto":
        args["tool_choice"] = _tool_choice(tool_choice)
    if config.response_schema is not None:
        schema = config.response_schema.model_dump(exclude_none=True)
        args["response_format"] = {
            "type": "json_schema",
            "json_schema": {**schema, "schema": schema.pop("json_schema")},
        }
    body = {**({"top_k": config.top_k} if config.top_k is not None else {}), **(config.extra_body or {})}
    chosen = {name: value for name, value in of_run.items() if value is not None}
    if _TOKEN_LIMITS & chosen.keys():
        args.pop("max_tokens", None)
    body.update(chosen.pop("extra_body", None) or {})
    return {**args, **chosen, **({"extra_body": body} if body else {})}


def tool_of(tool: ToolInfo) -> Tool:
    return Tool(name=tool.name, description=tool.description, parameters=tool.parameters.model_dump(exclude_none=True))


def message_of(message: ChatMessage) -> Message:
    """Converts a message of Inspect. Raises ``ConfigError`` if it has content that Nightjar cannot send."""
    match message.role:
        case "system":
            return SystemMessage(content=_content(message.content))
        case "user":
            return UserMessage(content=_content(message.content))
        case "tool":
            said = message.error.message if message.error is not None else _content(message.content)
            return ToolMessage(tool_call_id=str(message.tool_call_id), content=said)
        case _:
            return _assistant(message)


def output_of(response: Response, tools: Sequence[ToolInfo]) -> ModelOutput:
    """Converts a response to Inspect's output of a model."""
    said = response.message
    text, content = content_text(said.content), []
    if said.reasoning_content:
        content = [ContentReasoning(reasoning=said.reasoning_content), ContentText(text=text)]
    calls = [
        parse_tool_call(call.id or f"call_{number}", call.name, call.arguments, list(tools))
        for number, call in enumerate(said.tool_calls or [])
    ]
    message = ChatMessageAssistant(
        content=content or text, tool_calls=calls or None, model=response.model, source="generate"
    )
    reason = "tool_calls" if calls else _STOP_REASONS.get(said.finish_reason or "stop", "unknown")
    choice = ChatCompletionChoice(message=message, stop_reason=reason)
    return ModelOutput(model=response.model, choices=[choice], usage=_usage(response))


def plain(value: Any) -> Any:
    """Returns a value as JSON has it; what JSON cannot hold becomes text."""
    return json.loads(json.dumps(value, default=_jsonable, allow_nan=True), parse_constant=lambda _: None)


def _jsonable(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else str(value)


def _tool_choice(choice: ToolChoice) -> Any:
    if isinstance(choice, ToolFunction):
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice == "any" else choice


def _assistant(message: ChatMessageAssistant) -> AssistantMessage:
    parts = [] if isinstance(message.content, str) else message.content
    thoughts = [part.reasoning for part in parts if part.type == "reasoning" and part.reasoning]
    calls = [
        ToolCall(id=call.id, name=call.function, arguments=json.dumps(call.arguments))
        for call in message.tool_calls or []
    ]
    text = message.text
    return AssistantMessage(
        content=text if text or not calls else None,
        reasoning_content="\n".join(thoughts) or None,
        tool_calls=calls or None,
    )


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in content if part.type != "reasoning"]
    is_text = len(parts) == 1 and parts[0]["type"] == "text"
    return parts[0]["text"] if is_text else parts


def _part(part: Any) -> Mapping[str, Any]:
    match part.type:
        case "text":
            return {"type": "text", "text": part.text}
        case "image":
            return {"type": "image_url", "image_url": {"url": part.image}}
        case "audio" if part.audio.startswith("data:"):
            return {
                "type": "input_audio",
                "input_audio": {"data": part.audio.partition(",")[2], "format": part.format},
            }
        case kind:
            raise ConfigError(f"Content of the kind {kind!r} in a message of Inspect cannot be sent")


def _usage(response: Response) -> ModelUsage | None:
    if response.usage is None:
        return None
    given, written = usage_counts(response.usage)
    return ModelUsage(
        input_tokens=given,
        output_tokens=written,
        total_tokens=given + written,
        reasoning_tokens=response.usage.reasoning_tokens or None,
    )
