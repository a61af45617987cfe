"""``ThinkParser`` and ``MaybeThinkParser``: the answer of a model that thinks aloud between ``<think>`` tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nightjar.parsers.parser import Parser

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkParser(Parser):
    """Takes what stands after the last ``</think>``; without one, there is no answer (``""``).

    For models whose thoughts always come as part of their text. Where the server separates them from the answer
    (``reasoning_content``) or the chat template drops the tags, every answer would be empty: take ``MaybeThinkParser``.

    Example:
        >>> ThinkParser().parse("<think>2 + 2 …</think> 4")
        '4'
    """

    def __init__(self, extract_fn: Callable[[str], Any] = lambda text: text) -> None:
        super().__init__(extract_fn=extract_fn)
        self.logger.warning(
            "ThinkParser finds no answer in a text without </think>: models whose server or chat template takes their "
            "thoughts out, as with Qwen3 and DeepSeek-R1, need MaybeThinkParser"
        )

    def parse(self, text: str) -> Any:
        """Returns what ``extract_fn`` makes of the text after the thoughts."""
        _, tag, answer = text.rpartition(_CLOSE)
        return self.extract_fn(answer.strip() if tag else "")

    def get_format_reward_func(self) -> Callable[..., float]:
        """Returns a reward function: the share of messages that are ``<think>…</think>`` and then something."""
        return self.mean_over_messages(_is_in_format)


def _is_in_format(text: str) -> bool:
    has_one_pair = text.count(_OPEN) == text.count(_CLOSE) == 1
    return has_one_pair and text.strip().startswith(_OPEN) and not text.endswith(_CLOSE)


class MaybeThinkParser(Parser):
    """Takes what stands after the last ``</think>``, or all of a text without one.

    Example:
        >>> parser = MaybeThinkParser()
        >>> parser.parse("<think>2 + 2 …</think> 4"), parser.parse("4")
        ('4', '4')
    """

    def parse(self, text: str) -> Any:
        """Returns what ``extract_fn`` makes of the text after the thoughts, if there are any."""
        return self.extract_fn(text.rpartition(_CLOSE)[2].strip())
