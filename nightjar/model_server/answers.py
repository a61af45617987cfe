"""Answers of a model server: text, reasoning and tool calls.

An answerer knows neither the protocol of the request nor the faults. It is any object with a method ``answer``::

    class Echo:
        def answer(self, messages):
            question = last_user_text(messages)
            return Answer(question=question, text=question.upper())

For every protocol, the messages have the form of a chat completion: the system prompt is a message, tool calls are in
``tool_calls`` of an assistant message, and their results are messages with the role ``tool``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

Message = Mapping[str, Any]
"""A chat message with a ``role`` and a ``content``: text, a list of content parts, or None."""


@dataclass(frozen=True, slots=True)
class ToolCallAnswer:
    """A tool call of the model. The server replaces an empty id. ``arguments`` is JSON text, which may be invalid."""

    id: str
    name: str
    arguments: str


def tool_call(name: str, /, **arguments: Any) -> ToolCallAnswer:
    """Returns a tool call with these arguments; the server generates its id.

    Example:
        >>> tool_call("add", a=1, b=2)
        ToolCallAnswer(id='', name='add', arguments='{"a":1,"b":2}')
    """
    return ToolCallAnswer(id="", name=name, arguments=orjson.dumps(arguments).decode())


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the model; ``question`` is the name under which the server's statistics count it."""

    question: str
    text: str
    tool_calls: tuple[ToolCallAnswer, ...] = ()
    reasoning: str = ""


class Answerer(Protocol):
    """Turns a conversation into the model's next message."""

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers the last user message; a ``DatasetError`` becomes status 400.

        Called once for each request that will be answered, in order of arrival and in one thread.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedAnswer:
    """Answers every question with the same text."""

    text: str

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers with the fixed text."""
        return Answer(question=last_user_text(messages), text=self.text)


def last_user_text(messages: Sequence[Message]) -> str:
    """Returns the text of the last user message; empty if there is no user message.

    Example:
        >>> last_user_text([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}])
        'Hi'
    """
    for message in reversed(messages):
        if message["role"] == "user":
            return message_text(message)
    return ""


def message_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")
