"""Between OpenEnv and a model: observations as messages, answers as actions, tools and their results."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nightjar.calling import call
from nightjar.envs.openenv.project import OpenEnvError
from nightjar.messages import Messages, Tool, ToolCall, normalize_messages

PromptRenderer = Callable[..., Any]

_TOOL_ACTIONS = frozenset({"list_tools", "call_tool"})


async def render_messages(renderer: PromptRenderer, observation: Any, context: str, **details: Any) -> Messages:
    """Returns what a prompt renderer makes of an observation.

    Args:
        renderer: takes the observation, and by name what it wants of ``context`` and ``details``. It may be async.
        observation: as the server sent it.
        context: ``"reset"`` or ``"step"``.
        **details: ``action_schema``, ``contract``, ``seed``.

    Raises:
        OpenEnvError: it returned something else than messages with content.

    Example:
        >>> import asyncio
        >>> def render(observation, context):
        ...     return [{"role": "user", "content": f"{context}: {observation['prompt']}"}]
        >>> asyncio.run(render_messages(render, {"prompt": "Hi"}, "reset", seed=0))[0].content
        'reset: Hi'
    """
    wanted = _wanted(renderer, {"context": context, **details})
    rendered = await call(renderer, observation, **wanted)
    if not isinstance(rendered, list) or not rendered:
        raise OpenEnvError(
            f"prompt_renderer must return a non-empty list of chat messages for {context}, found {rendered!r}"
        )
    messages = normalize_messages(rendered, field_name=f"prompt_renderer for {context}")
    empty = [position for position, message in enumerate(messages) if message.content is None]
    if empty:
        raise OpenEnvError(f"prompt_renderer returned a message without content for {context}, at index {empty[0]}")
    return messages


def _wanted(renderer: PromptRenderer, details: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(renderer).parameters
    except (TypeError, ValueError):
        return dict(details)
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in details.items() if takes_all or name in parameters}


def parse_action(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    r"""Returns the action in a model's answer: a JSON object, or the text for a schema with a single text field.

    A code fence around it is passed over.

    Raises:
        ValueError: it is neither.

    Example:
        >>> schema = {"properties": {"message": {"type": "string"}}, "required": ["message"]}
        >>> parse_action('```json\n{"message": "hi"}\n```', schema), parse_action("hello", schema)
        ({'message': 'hi'}, {'message': 'hello'})
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
    """Returns the one required field, or else the one field that there is, where it is a text."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return None
    required = [name for name in schema.get("required") or [] if isinstance(name, str)]
    for names in (required, list(properties)):
        if len(names) == 1 and _is_text(properties.get(names[0])):
            return names[0]
    return None


def _is_text(field: Any) -> bool:
    return isinstance(field, dict) and field.get("type") == "string"


def takes_tool_calls(schema: Any) -> bool:
    """Says whether an action schema is that of tool calls.

    Example:
        >>> takes_tool_calls({"properties": {"tool_name": {}, "arguments": {}}})
        True
        >>> takes_tool_calls({"properties": {"message": {"type": "string"}}})
        False
    """
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    is_call = isinstance(properties, dict) and {"tool_name", "arguments"} <= properties.keys()
    return is_call or _names_tool_action(schema)


def _names_tool_action(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_names_tool_action(item) for item in schema)
    if not isinstance(schema, dict):
        return False
    allowed = schema.get("enum")
    if isinstance(allowed, list) and any(value in _TOOL_ACTIONS for value in allowed if isinstance(value, str)):
        return True
    return any(_names_tool_action(value) for value in schema.values())


def tool_definitions(tools: Iterable[Mapping[str, Any]]) -> list[Tool]:
    """Returns tools as MCP describes them as those that a model is offered.

    Example:
        >>> tool_definitions([{"name": "echo", "inputSchema": {"type": "object"}}])[0].parameters
        {'type': 'object'}
    """
    return [
        Tool(
            name=tool.get("name", ""),
            description=tool.get("description") or "",
            parameters=tool.get("input_schema") or tool.get("inputSchema") or {"type": "object", "properties": {}},
        )
        for tool in tools
    ]


def tool_action(tool_call: ToolCall) -> dict[str, Any]:
    """Returns a tool call as an action.

    Raises:
        ValueError: the tool has no name, or its arguments are no JSON object.

    Example:
        >>> tool_action(ToolCall(id="1", name="look", arguments='{"at": "door"}'))
        {'type': 'call_tool', 'tool_name': 'look', 'arguments': {'at': 'door'}}
    """
    arguments = json.loads(tool_call.arguments)
    if not isinstance(arguments, dict):
        raise ValueError("tool arguments must be an object")  # noqa: TRY004 - it is the model's mistake
    name = tool_call.name.strip()
    if not name:
        raise ValueError("tool name cannot be empty")
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def tool_result(observation: Any) -> Any:
    """Returns what a tool gave, out of the observation of its call.

    Example:
        >>> tool_result({"tool_name": "add", "result": {"data": 4, "is_error": False}, "error": None})
        4
        >>> tool_result({"tool_name": "add", "result": None, "error": {"message": "no"}})
        {'error': {'message': 'no'}}
    """
    if not isinstance(observation, dict):
        return observation
    if observation.get("error") is not None:
        return {"error": observation["error"]}
    result = observation.get("result")
    return result["data"] if isinstance(result, dict) and "data" in result else result
