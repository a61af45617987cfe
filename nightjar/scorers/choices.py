"""Answers to multiple choice: the letter of an option."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"[*_`$]+")
_BOXED = re.compile(r"\\boxed\{\s*(?:\\text\{)?\s*\(?([A-Za-z])\)?\s*\}?\s*\}")
_STATED = re.compile(
    r"(?i)\b(?:answer|ans|option|choice)\b[^\S\n]*(?:is|would be)?[^\S\n]*[:：]?[^\S\n]*"
    r"(?:option|choice)?[^\S\n]*\(?([A-Z])\)?(?![\w'])(?![^\S\n]+[a-z])"
)
_ALONE = re.compile(r"(?m)^[^\S\n]*\(?([A-Za-z])\)?[.)]?[^\S\n]*$")
_IN_BRACKETS = re.compile(r"\(([A-Za-z])\)")


def stated_letter(text: str, letters: str = "ABCDEFGHIJ") -> str | None:
    r"""Returns the letter that a text ends up with, in upper case; None where it names none of ``letters``.

    It is the last one that stands in a box, else after "answer", else alone in a line, else in brackets. A letter that
    begins a word, or goes on as a sentence does ("answer: I think"), is none.

    Example:
        >>> stated_letter("**Answer:** B"), stated_letter("Answer: because of that\nAnswer: (c)")
        ('B', 'C')
        >>> stated_letter("Answer: I think C"), stated_letter("no idea")
        (None, None)
    """
    plain = _MARKUP.sub("", text)
    for pattern in (_BOXED, _STATED, _ALONE, _IN_BRACKETS):
        found = [letter.upper() for letter in pattern.findall(plain) if letter.upper() in letters.upper()]
        if found:
            return str(found[-1])
    return None
