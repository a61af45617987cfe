"""Between OpenEnv and a model: observations as messages, answers as actions, tools and their results."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from nightjar.calling import call
from nightjar.envs.openenv.project import OpenEnvError
from nightjar.messages import Messages, ToolCall, normalize_messages

PromptRenderer = Callable[..., Any]

_TOOL_ACTION = re.compile('"(list_tools|call_tool)"')


async def render_messages(renderer: PromptRenderer, observation: Any, context: str, **details: Any) -> Messages:
    """Returns the messages that a prompt renderer makes of an observation and of those details that it names."""
    offered = {"context": context, **details}
    parameters = inspect.signature(renderer).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        offered = {name: value for name, value in offered.items() if name in parameters}
    rendered = await call(renderer, observation, **offered)
    if not isinstance(rendered, list) or not rendered:
        raise OpenEnvError(
            f"prompt_renderer must return a non-empty list of chat messages for {context}, found {rendered!r}"
        )
    messages = normalize_messages(rendered, field_name=f"prompt_renderer for {context}")
    for position, message in enumerate(messages):
        if message.content is None:
            raise OpenEnvError(f"prompt_renderer returned a message without content for {context}, at index {position}")
    return messages


def parse_action(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the action in a model's answer: a JSON object, or the text for a schema with a single text field.

    A code fence around it is passed over. ``ValueError`` where it is neither.
    """
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        bare = "\n".join(bare.split("\n")[1:-1]).strip()
    try:
        action = json.loads(bare)
    except ValueError:
        action = None
    if isinstance(action, dict):
        return action
    field = _single_text_field(schema)
    if field is None:
        raise ValueError("Failed to parse action JSON. Provide a JSON object matching the action schema.")
    return {field: bare}


def _single_text_field(schema: Mapping[str, Any]) -> str | None:
    properties = schema.get("properties") or {}
    names = schema.get("required") or list(properties)
    is_text = len(names) == 1 and properties.get(names[0], {}).get("type") == "string"
    return names[0] if is_text else None


def takes_tool_calls(schema: Mapping[str, Any] | None) -> bool:
    """Says whether an action schema is that of tool calls."""
    has_fields = {"tool_name", "arguments"} <= ((schema or {}).get("properties") or {}).keys()
    return has_fields or _TOOL_ACTION.search(json.dumps(schema)) is not None


def tool_action(tool_call: ToolCall) -> dict[str, Any]:
    """Returns a tool call as an action; ``ValueError`` where it has no name, or its arguments are no JSON object."""
    arguments = json.loads(tool_call.arguments)
    if not isinstance(arguments, dict):
        raise ValueError("tool arguments must be an object")  # noqa: TRY004 - it is the model's mistake
    name = tool_call.name.strip()
    if not name:
        raise ValueError("tool name cannot be empty")
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def tool_result(observation: Any) -> Any:
    """Returns what a tool gave, out of the observation of its call."""
    if not isinstance(observation, dict):
        return observation
    if observation.get("error") is not None:
        return {"error": observation["error"]}
    result = observation.get("result")
    return result["data"] if isinstance(result, dict) and "data" in result else result
