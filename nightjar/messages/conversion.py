"""From what environments write to messages, and from messages to JSON-ready data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from nightjar.errors import ConfigError
from nightjar.messages.conversation import (
    AssistantMessage,
    Message,
    Messages,
    SystemMessage,
    TextMessage,
    ToolMessage,
    UserMessage,
)

_LONGEST_SHOWN = 500
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="role")])
_MESSAGE_TYPES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage, TextMessage)
_ATOMS = frozenset({str, int, bool, type(None)})
_LIST_TYPES = (list, Sequence)
_RAW_TYPES = (dict, Mapping, BaseModel)


def from_raw_message(message: Mapping[str, Any]) -> Message:
    """Makes a message of a dict with ``role`` and ``content``; tool calls may be nested as OpenAI nests them.

    Raises:
        ConfigError: the dict is not a message.

    Example:
        >>> from_raw_message({"role": "user", "content": "Hello"})
        UserMessage(role='user', content='Hello')
    """
    if not isinstance(message, _RAW_TYPES):
        raise ConfigError(f"Not a chat message: {_shown(message)}: expected a dict or a message")
    raw = dict(message)
    if raw.get("tool_calls"):
        raw["tool_calls"] = [_flat_tool_call(call) for call in raw["tool_calls"]]
    try:
        return _MESSAGE.validator.validate_python(raw)  # type: ignore[no-any-return]
    except ValidationError as error:
        found = error.errors()[0]
        problem = ": ".join(part for part in (".".join(map(str, found["loc"])), found["msg"]) if part)
        raise ConfigError(f"Not a chat message: {_shown(raw)}: {problem}") from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _flat_tool_call(call: Any) -> Any:
    if isinstance(call, Mapping):
        flat = {"id": call.get("id"), **call["function"]} if "function" in call else dict(call)
        if isinstance(flat.get("arguments"), Mapping):
            flat["arguments"] = json.dumps(flat["arguments"])
        return flat
    return call


def normalize_messages(value: Any, *, field_name: str = "messages") -> Messages:
    """Makes messages of what environments write: a text, dicts, or messages.

    A text becomes one text message. Messages are taken over as they are, not copied.

    Example:
        >>> normalize_messages([{"role": "user", "content": "Hello"}])
        [UserMessage(role='user', content='Hello')]

    Raises:
        ConfigError: ``value`` is neither a text nor a list of messages; ``field_name`` is named.
    """
    if isinstance(value, str):
        return [TextMessage(content=value)]
    if not isinstance(value, _LIST_TYPES):
        raise ConfigError(f"{field_name} must be a text or a list of messages, found {_shown(value)}")
    return [
        item if type(item) in _MESSAGE_TYPES or isinstance(item, _MESSAGE_TYPES) else from_raw_message(item)
        for item in value
    ]


def concat_messages(parts: Iterable[str | Sequence[Any]]) -> Messages:
    """Joins several texts or lists of messages to one list.

    Example:
        >>> len(concat_messages([[UserMessage(content="a")], "b"]))
        2
    """
    return [message for part in parts for message in normalize_messages(part)]


def content_text(content: Any) -> str:
    """Returns the text of a message's content; the texts of several parts are joined by a space.

    Example:
        >>> content_text([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
        'a b'
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in content if part.get("type") == "text")
    return " ".join(text for text in texts if text)


def dump_message(message: Any) -> Any:
    """Returns a message as JSON-ready data, without fields that are not set.

    Example:
        >>> dump_message(AssistantMessage(content="4"))
        {'role': 'assistant', 'content': '4'}
    """
    if not _is_model(message.__class__):
        return message
    fields = message.__dict__
    if not message.__pydantic_extra__ and all(type(value) in _ATOMS for value in fields.values()):
        return {name: value for name, value in fields.items() if value is not None}  # what model_dump does, in a third
    return message.model_dump(mode="json", exclude_none=True)


@lru_cache(maxsize=256)
def _is_model(kind: type[Any]) -> bool:
    return issubclass(kind, BaseModel)


def dump_messages(messages: Any) -> Any:
    """Returns messages as JSON-ready data; a text and ``None`` stay what they are.

    Example:
        >>> dump_messages([UserMessage(content="What is 2+2?")])
        [{'role': 'user', 'content': 'What is 2+2?'}]
    """
    if messages is None or isinstance(messages, str):
        return messages
    return [dump_message(message) for message in messages]
