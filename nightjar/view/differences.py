"""Compares two texts: line by line, and changed lines word by word. Long equal parts are folded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, takewhile

LONGEST_COMPARED = 500_000
_MOST_LINES, _MOST_WORDS, _MOST_WORDS_IN_ALL = 2_000, 1_500, 10_000
"""The limits of a comparison, whose time grows with their square. A longer part is shown as replaced."""
_CONTEXT = 20
"""The equal words shown before and after a difference. The equal words in between are folded."""
_WORD = re.compile(r"\s{0,100}\S{1,100}|\s{1,100}")


@dataclass(frozen=True)
class Change:
    """Words that are the ``same``, ``gone`` from the first text, ``new`` in the second, or the same and ``folded``."""

    kind: str
    text: str

    @property
    def words(self) -> int:
        return len(self.text.split())


def differences(before: str, after: str) -> list[Change]:
    """Returns how one text becomes another, for the first 500,000 characters of each."""
    old, new = (text[:LONGEST_COMPARED].splitlines(keepends=True) for text in (before, after))
    words_left = _MOST_WORDS_IN_ALL
    changes: list[Change] = []
    for kind, gone, added in _steps(old, new, _MOST_LINES):
        gone_words, added_words = (_WORD.findall("".join(lines)) for lines in (gone, added))
        words_left -= len(gone_words) + len(added_words) if kind == "replace" else 0
        if kind == "replace" and words_left >= 0:
            for part, was, now in _steps(gone_words, added_words, _MOST_WORDS):
                changes += _changes(part, was, now)
        else:
            changes += _changes(kind, gone, added)
    runs = groupby(changes, key=lambda change: change.kind)
    return [Change(kind, "".join(change.text for change in run)) for kind, run in runs]


def folded_differences(changes: list[Change]) -> list[Change]:
    """Folds long equal parts, except for the words next to a difference."""
    last = len(changes) - 1
    return [
        part
        for place, change in enumerate(changes)
        for part in _folded(change, is_first=place == 0, is_last=place == last)
    ]


def _steps(old: list[str], new: list[str], most: int) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields the steps from one list to another. ``most`` does not limit their common beginning and end."""
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    was, now = old[start : len(old) - end], new[start : len(new) - end]
    yield "equal", old[:start], new[:start]
    if max(len(was), len(now)) > most:
        yield "replace", was, now
    else:
        for kind, i, j, k, m in SequenceMatcher(None, was, now).get_opcodes():
            yield kind, was[i:j], now[k:m]
    yield "equal", old[len(old) - end :], new[len(new) - end :]


def _common(old: list[str], new: list[str]) -> int:
    """Returns the number of items that both lists begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _changes(kind: str, gone: list[str], added: list[str]) -> Iterator[Change]:
    for name, texts in [("same", added)] if kind == "equal" else [("gone", gone), ("new", added)]:
        if texts:
            yield Change(name, "".join(texts))


def _folded(change: Change, *, is_first: bool, is_last: bool) -> Iterator[Change]:
    words = _WORD.findall(change.text) if change.kind == "same" else []
    start, end = 0 if is_first else _CONTEXT, len(words) - (0 if is_last else _CONTEXT)
    if end - start <= 2 * _CONTEXT:
        yield change
        return
    for kind, part in (("same", words[:start]), ("folded", words[start:end]), ("same", words[end:])):
        if part:
            yield Change(kind, "".join(part))
