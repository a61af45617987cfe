"""Texts as people write them: equal, containing, and the line that says the answer."""

from __future__ import annotations

import re
import unicodedata

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_MARKUP = re.compile(r"[*_`]+|\\(?:text|mathrm)\b")
_ANSWER = re.compile(r"(?im)^[^\S\n]*(?:final[^\S\n]+)?(?:answer|ans)[^\S\n]*(?:is)?[^\S\n]*[:：][^\S\n]*(\S[^\n]*)")
_LATER_ANSWER = re.compile(r"(?i)\banswer[^\S\n]*[:：][^\S\n]*(\S[^\n]*)")


def normalized(text: str) -> str:
    """Returns a text without case, accents, articles and punctuation; as it is, less case, where nothing is left then.

    Example:
        >>> normalized("The  Café!"), normalized("!!"), normalized("a")
        ('cafe', '!!', 'a')
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(c))
    bare = " ".join(_ARTICLES.sub(" ", _PUNCTUATION.sub(" ", plain)).split())
    return bare or " ".join(plain.split())


def same_text(given: str, reference: str) -> bool:
    """Says whether two texts are the same but for case, articles and punctuation; nothing is the same as nothing.

    Example:
        >>> same_text("The Hague.", "hague"), same_text("!!", "??"), same_text("", "")
        (True, False, False)
    """
    return bool(given.strip()) and normalized(given) == normalized(reference)


def contains_text(given: str, reference: str) -> bool:
    """Says whether a text says the reference, as whole words, or is itself part of it; nothing says nothing.

    Example:
        >>> contains_text("It is Paris, of course", "Paris"), contains_text("13 cats", "3"), contains_text("", "Paris")
        (True, False, False)
    """
    said, wanted = (f" {normalized(text)} " for text in (given, reference))
    return bool(said.strip() and wanted.strip()) and (wanted in said or said in wanted)


def stated_answer(text: str) -> str:
    r"""Returns what follows the last ``Answer:``, without markup, or else the last line.

    Example:
        >>> stated_answer("Answer: think first.\n**Answer:** 42"), stated_answer("So\nit is 7.\n")
        ('42', 'it is 7.')
    """
    plain = _MARKUP.sub("", text)
    found = _ANSWER.findall(plain) or _LATER_ANSWER.findall(plain)
    lines = plain.strip().splitlines() or [""]
    return str(found[-1] if found else lines[-1]).strip()
