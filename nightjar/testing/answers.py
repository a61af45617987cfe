"""What a model server answers: messages in; text, reasoning and tool calls out.

An answerer knows neither the protocol in which it is asked nor the faults around it. Anything with
an ``answer`` method will do::

    class Echo:
        def answer(self, messages):
            question = last_user_text(messages)
            return Answer(question=question, text=question.upper())

Whatever the protocol, the messages are those of a chat completion: the system prompt is a message,
tool calls are in ``tool_calls`` of an assistant message, and their results are messages of the role
``tool``.
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
    """A tool call that the model asks for; ``tool_call`` writes one more briefly.

    Attributes:
        id: what the tool's result refers to; the server makes one up where it is empty.
        name: the tool.
        arguments: JSON text, as the model writes it; it need not be valid.

    Example:
        >>> ToolCallAnswer(id="call_1", name="add", arguments='{"a": 1').arguments
        '{"a": 1'
    """

    id: str
    name: str
    arguments: str


def tool_call(name: str, /, **arguments: Any) -> ToolCallAnswer:
    """Makes a call of a tool with these arguments; the server makes up its id.

    Example:
        >>> tool_call("add", a=1, b=2)
        ToolCallAnswer(id='', name='add', arguments='{"a":1,"b":2}')
    """
    return ToolCallAnswer(id="", name=name, arguments=orjson.dumps(arguments).decode())


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says.

    Attributes:
        question: what was asked, as the server's statistics count it.
        text: the completion.
        tool_calls: the tools that the model calls.
        reasoning: what the model thinks before it speaks.

    Example:
        >>> Answer(question="1 + 1?", text="2", reasoning="Easy.")
        Answer(question='1 + 1?', text='2', tool_calls=(), reasoning='Easy.')
    """

    question: str
    text: str
    tool_calls: tuple[ToolCallAnswer, ...] = ()
    reasoning: str = ""


class Answerer(Protocol):
    """Turns a conversation into the model's next message.

    Example:
        >>> answerer: Answerer = FixedAnswer("42")
        >>> answerer.answer([{"role": "user", "content": "6 x 7?"}]).question
        '6 x 7?'
    """

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers the last user message; ``DatasetError`` where there is no answer gives the client status 400.

        Called once for each request that is going to be answered, in order of arrival and from one thread.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedAnswer:
    """Answers every question with the same text.

    Example:
        >>> FixedAnswer("yes").answer([{"role": "user", "content": "Is it so?"}]).text
        'yes'
    """

    text: str

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers with the fixed text."""
        return Answer(question=last_user_text(messages), text=self.text)


def last_user_text(messages: Sequence[Message]) -> str:
    """Returns the text of the last user message; empty when there is none.

    Example:
        >>> last_user_text([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}])
        'Hi'
    """
    for message in reversed(messages):
        if message["role"] == "user":
            return message_text(message)
    return ""


def message_text(message: Message) -> str:
    """Returns a message's text; content parts that are not text are left out."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")
