"""``ThinkParser`` and its like: the answer of a model that thinks aloud between ``<think>`` tags."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nightjar.messages import Messages
from nightjar.parsers.parser import Parser
from nightjar.parsers.xml_parser import XMLParser

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


class AfterThinkParser(Parser):
    """Takes what stands after the last ``</think>``, or all of a text without one, but nothing of a text cut off in it.

    Example:
        >>> parser = AfterThinkParser()
        >>> parser.parse("<think>2 + 2 …</think> 4"), parser.parse("4"), parser.parse("<think>5?")
        ('4', '4', '')
    """

    def parse(self, text: str) -> Any:
        """Returns what ``extract_fn`` makes of the text after the thoughts, if there are any."""
        return self.extract_fn(without_thoughts(text))


class AfterThinkXMLParser(XMLParser):
    """Reads fields between tags in what stands after the thoughts, if there are any; the tag next to its end opens it.

    Example:
        >>> parser = AfterThinkXMLParser(["answer"])
        >>> parser.parse_answer("<think><answer>5</answer>?</think>In <answer> tags: <answer>4</answer>")
        '4'
    """

    def parse(self, text: str, strip: bool = True, last: bool = False) -> Any:
        """Returns what ``XMLParser`` finds in the text after the thoughts."""
        found = vars(super().parse(without_thoughts(text), strip, last)).items()
        return SimpleNamespace(**{tag: said and said.rpartition(f"<{tag}>")[2].strip() for tag, said in found})

    def said_texts(self, completion: Messages | str) -> list[str]:
        """Returns the text of each of the model's messages, without its thoughts."""
        return [without_thoughts(text) for text in super().said_texts(completion)]


def without_thoughts(text: str) -> str:
    """Returns what stands after the last ``</think>``; nothing where thoughts begin a text and do not end.

    Example:
        >>> without_thoughts("<think>hm</think> 4"), without_thoughts("4"), without_thoughts("<think>4")
        ('4', '4', '')
    """
    said = text.rpartition(_CLOSE)[2].strip()
    return "" if said.startswith(_OPEN) else said
