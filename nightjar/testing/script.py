"""A scripted model for conversations of several turns and for tools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from nightjar.errors import ConfigError, DatasetError
from nightjar.testing.answers import Answer, Message, ToolCallAnswer, last_user_text

Said: TypeAlias = str | ToolCallAnswer | Sequence[ToolCallAnswer] | Answer
"""What the model says in a turn: a text, a tool call, several at once, or a whole answer."""

Turn: TypeAlias = Said | Callable[[Sequence[Message]], Said]
"""What the model says, or a function that finds it in the messages."""


class Script:
    """Says in each turn of a conversation what is written for it.

    The turn is the number of assistant messages that the conversation already has, so any number of
    conversations can go on at once.

    Args:
        turns: what to say in the first turn, in the second and so on; or one function for all turns.

    Example:
        >>> from nightjar.testing import Script, tool_call
        >>> script = Script([tool_call("add", a=1, b=2), lambda messages: f"It is {messages[-1]['content']}."])
        >>> question = {"role": "user", "content": "1 + 2?"}
        >>> script.answer([question]).tool_calls[0].name
        'add'
        >>> said = {"role": "assistant", "content": None, "tool_calls": []}
        >>> script.answer([question, said, {"role": "tool", "tool_call_id": "call_1", "content": "3"}]).text
        'It is 3.'
    """

    def __init__(self, turns: Sequence[Turn] | Callable[[Sequence[Message]], Said]) -> None:
        if isinstance(turns, str):
            raise ConfigError(
                f"A script is a list of turns, found the text {turns!r}. Write [{turns!r}] or FixedAnswer."
            )
        self._turn_of = turns if callable(turns) else functools.partial(_written_turn, turns)

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers with what the script has for this turn.

        Raises:
            DatasetError: the script has fewer turns.
        """
        turn = self._turn_of(messages)
        said: Said = turn(messages) if callable(turn) else turn
        if isinstance(said, Answer):
            return said
        question = last_user_text(messages)
        if isinstance(said, str):
            return Answer(question=question, text=said)
        calls = (said,) if isinstance(said, ToolCallAnswer) else tuple(said)
        return Answer(question=question, text="", tool_calls=calls)


def _written_turn(turns: Sequence[Turn], messages: Sequence[Message]) -> Turn:
    position: int = sum(message["role"] == "assistant" for message in messages)
    if position >= len(turns):
        raise DatasetError(
            f"The script has {len(turns)} turns, and the conversation asks for turn {position + 1}. "
            "Write one more turn, or give Script a function."
        )
    return turns[position]
