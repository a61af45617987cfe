"""What is sent of an answer: all of it, or as much as the request allows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nightjar.testing.answers import Answer, ToolCallAnswer
from nightjar.testing.tokens import call_text

_WORD = re.compile(r"\S+")


@dataclass(slots=True)
class ModelOutput:
    """An answer after the cut to the tokens that it may have; ``tokens`` counts all of it, reasoning included."""

    text: str
    tool_calls: tuple[ToolCallAnswer, ...]
    reasoning: str
    tokens: int
    reasoning_tokens: int
    is_cut: bool

    def texts(self) -> Iterator[str]:
        """Yields the texts whose words are the tokens, in order."""
        yield self.reasoning
        yield self.text
        for call in self.tool_calls:
            yield call_text(call.name, call.arguments)


def cut(answer: Answer, max_tokens: int | None) -> ModelOutput:
    """Cuts an answer to its first tokens; None means no limit.

    Reasoning counts first, then the text, then the tool calls; a call that does not fit in whole is left out.
    """
    reasoning, reasoning_tokens, is_cut = _first_words(answer.reasoning, max_tokens)
    left = None if max_tokens is None else max_tokens - reasoning_tokens
    text, text_tokens, is_text_cut = _first_words(answer.text, left)
    tokens = reasoning_tokens + text_tokens
    calls: list[ToolCallAnswer] = []
    for call in answer.tool_calls:
        size = len(call_text(call.name, call.arguments).split())
        if max_tokens is not None and tokens + size > max_tokens:
            break
        tokens += size
        calls.append(call)
    is_cut = is_cut or is_text_cut or len(calls) < len(answer.tool_calls)
    return ModelOutput(text, tuple(calls), reasoning, tokens, reasoning_tokens, is_cut)


def _first_words(text: str, limit: int | None) -> tuple[str, int, bool]:
    """Returns as much of a text as has ``limit`` words, its number of words, and whether it was cut."""
    count = len(text.split())
    if limit is None or count <= limit:
        return text, count, False
    if limit == 0:
        return "", 0, True
    last = next(itertools.islice(_WORD.finditer(text), limit - 1, None))
    return text[: last.end()], limit, True
