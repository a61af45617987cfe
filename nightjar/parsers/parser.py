"""``Parser``: takes the answer out of a completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nightjar.messages import Messages, content_text


class Parser:
    """Takes the answer out of a completion.

    Args:
        extract_fn: from the text of the last assistant message to the answer. The text itself
            unless given.

    Example:
        >>> Parser(str.upper).parse_answer([{"role": "assistant", "content": "b"}])
        'B'
    """

    def __init__(self, extract_fn: Callable[[str], Any] = lambda text: text) -> None:
        self.extract_fn = extract_fn

    def parse(self, text: str) -> Any:
        """Returns what ``extract_fn`` makes of a text."""
        return self.extract_fn(text)

    def get_assistant_messages(self, completion: Messages) -> Messages:
        """Returns the model's messages."""
        return self._with_role(completion, "assistant")

    def get_system_messages(self, completion: Messages) -> Messages:
        """Returns the system messages."""
        return self._with_role(completion, "system")

    def get_user_messages(self, completion: Messages) -> Messages:
        """Returns the user's, or the environment's, messages."""
        return self._with_role(completion, "user")

    def get_tool_messages(self, completion: Messages) -> Messages:
        """Returns the results of tool calls."""
        return self._with_role(completion, "tool")

    def parse_answer(self, completion: Messages | str) -> Any:
        """Returns the answer in a completion; None where there is no assistant message."""
        if isinstance(completion, str):
            return self.parse(completion)
        said = self.get_assistant_messages(completion)
        return self.parse(content_text(said[-1].get("content"))) if said else None

    def get_format_reward_func(self) -> Callable[..., float]:
        """Returns a reward function for the format; 1.0 always, as plain text has none."""

        def format_reward(completion: Messages) -> float:  # noqa: ARG001 - the rubric passes it
            return 1.0

        return format_reward

    @staticmethod
    def _with_role(messages: Messages, role: str) -> Messages:
        return [message for message in messages if message.get("role") == role]
