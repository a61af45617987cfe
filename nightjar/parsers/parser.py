"""``Parser``: takes the answer out of a completion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from nightjar.messages import Messages, content_text


def _whole(text: str) -> str:
    return text


class Parser:
    """Takes the answer out of a completion.

    Messages may be dicts or objects with the same fields. A completion may be a text, too.

    Args:
        extract_fn: from the text of the last assistant message to the answer; the text itself unless given.

    Example:
        >>> Parser(str.upper).parse_answer([{"role": "assistant", "content": "b"}])
        'B'
    """

    def __init__(self, extract_fn: Callable[[str], Any] = _whole) -> None:
        self.logger = logging.getLogger(f"{__name__}.{type(self).__name__}")
        self.extract_fn = extract_fn

    @property
    def takes_all(self) -> bool:
        """Says whether the answer is the text as it is."""
        kind = type(self)
        return self.extract_fn is _whole and kind.parse is Parser.parse and kind.parse_answer is Parser.parse_answer

    def parse(self, text: str) -> Any:
        """Returns what ``extract_fn`` makes of a text."""
        return self.extract_fn(text)

    def get_assistant_messages(self, completion: Messages) -> Messages:
        """Returns the model's messages."""
        return _with_role(completion, "assistant")

    def get_system_messages(self, completion: Messages) -> Messages:
        """Returns the system messages."""
        return _with_role(completion, "system")

    def get_user_messages(self, completion: Messages) -> Messages:
        """Returns the user's, or the environment's, messages."""
        return _with_role(completion, "user")

    def get_tool_messages(self, completion: Messages) -> Messages:
        """Returns the results of tool calls."""
        return _with_role(completion, "tool")

    def parse_answer(self, completion: Messages | str) -> Any:
        """Returns the answer in a completion; None where there is no assistant message."""
        if isinstance(completion, str):
            return self.parse(completion)
        said = self.get_assistant_messages(completion)
        return self.parse(message_text(said[-1])) if said else None

    def get_format_reward_func(self) -> Callable[..., float]:
        """Returns a reward function for the format; 1.0 always, as plain text has none."""

        def format_reward_func(completion: Messages | str) -> float:  # noqa: ARG001 - the rubric passes it
            return 1.0

        return format_reward_func

    def mean_over_messages(self, score: Callable[[str], float]) -> Callable[..., float]:
        """Returns a reward function: the mean score of the model's messages; 0.0 where there are none."""

        def format_reward_func(completion: Messages | str) -> float:
            texts = self.said_texts(completion)
            return sum(map(score, texts)) / len(texts) if texts else 0.0

        return format_reward_func

    def said_texts(self, completion: Messages | str) -> list[str]:
        """Returns the text of each of the model's messages; a completion that is a text is one message."""
        if isinstance(completion, str):
            return [completion]
        return [message_text(message) for message in self.get_assistant_messages(completion)]


def message_text(message: Any) -> str:
    """Returns the text of a message; empty where it has none."""
    return content_text(_field(message, "content"))


def _with_role(messages: Messages, role: str) -> Messages:
    return [message for message in messages if _field(message, "role") == role]


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
