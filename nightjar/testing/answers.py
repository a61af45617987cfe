"""What a model server answers: messages in, text out.

An answerer knows neither the protocol in which it is asked nor the faults around it. Anything with
an ``answer`` method will do::

    class Echo:
        def answer(self, messages):
            question = last_user_text(messages)
            return Answer(question=question, text=question.upper())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Message = Mapping[str, Any]
"""A chat message with a ``role`` and a ``content``: text, a list of content parts, or None."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says.

    Attributes:
        question: what was asked, as the server's statistics count it.
        text: the completion.
    """

    question: str
    text: str


class Answerer(Protocol):
    """Turns a conversation into the model's next message."""

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers the last user message.

        Called once for each request that is going to be answered, in order of arrival and from one
        thread.

        Raises:
            DatasetError: there is no answer to this question; the client gets status 400.
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
    """Returns the text of the last user message; empty when there is none."""
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
