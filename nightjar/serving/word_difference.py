"""What differs between two texts, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

MOST_WORDS = 1_500
"""Of each text: what is beyond is not compared, as the time grows with the square."""

_WORD = re.compile(r"\s{0,100}\S{1,100}|\s{1,100}")


@dataclass(frozen=True)
class Change:
    """A stretch of words: ``same``, ``gone`` from the first text, or ``new`` in the second."""

    kind: str
    text: str


def word_difference(before: str, after: str) -> list[Change]:
    """Returns how one text becomes another, by the first words of each.

    Example:
        >>> [(change.kind, change.text) for change in word_difference("It is 4.", "It is 5.")]
        [('same', 'It is'), ('gone', ' 4.'), ('new', ' 5.')]
    """
    return list(_changes(_words(before), _words(after)))


def is_whole(text: str) -> bool:
    """Says whether all of a text is compared."""
    return next((False for number, _ in enumerate(_WORD.finditer(text)) if number >= MOST_WORDS), True)


def _words(text: str) -> list[str]:
    return [found[0] for found, _ in zip(_WORD.finditer(text), range(MOST_WORDS), strict=False)]


def _changes(before: list[str], after: list[str]) -> Iterator[Change]:
    for kind, i, j, k, m in SequenceMatcher(None, before, after).get_opcodes():
        if kind == "equal":
            yield Change("same", "".join(after[k:m]))
            continue
        if i < j:
            yield Change("gone", "".join(before[i:j]))
        if k < m:
            yield Change("new", "".join(after[k:m]))
