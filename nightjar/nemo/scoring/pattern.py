"""Scorers that look for an answer: a letter, a line, a number."""

from __future__ import annotations

import re
from string import ascii_uppercase
from typing import Any

from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.scorers import last_number, plain_text, read_number, read_numbers, stated_answer
from nightjar.scorers.choices import stated_letter

_BRACKETS = re.compile(r"[\s()\[\].]+")
_AMOUNT = re.compile(r"-?\s*[$€£¥]?\s*-?[\d.]")
_ASIDE = re.compile(r"[.!?](?=\s|$)|\s\(|[:;\[]\s|,\s(?=(?:as|which|so)\b)|\b(?:in|per|because|since|of|for)\b")
"""Where what is said besides an answer begins."""
_UNITS = re.compile(r"[\s$%]|(?<=\d),(?=\d{3}(?!\d))")


def multichoice_regex(sample: ScorerInput, pattern: str | None = None) -> dict[str, Any]:
    """Compares the letter that the response ends up with, or the last that ``pattern`` finds, with the target's."""
    found = (
        stated_letter(sample.response, ascii_uppercase) if pattern is None else _last_found(pattern, sample.response)
    )
    return same_letter(found, sample.target)


def answer_line(sample: ScorerInput, pattern: str | None = None) -> dict[str, Any]:
    """Compares what the response states, as ``stated_answer`` finds it, with the target: as texts, or as numbers.

    What ``pattern`` finds last goes before it.
    """
    said = stated_answer(sample.response)
    found = said if pattern is None else (_last_found(pattern, sample.response) or said).strip()
    target = str(sample.target)
    return {
        "correct": bool(found) and (_bare(found) == _bare(target) or _same_value(found, target)),
        "extracted": found,
    }


def numeric_match(sample: ScorerInput) -> dict[str, Any]:
    """Compares the last number of the response with the target's."""
    found, wanted = last_number(sample.response), read_number(str(sample.target))
    return {"correct": found is not None and found == wanted, "extracted": None if found is None else str(found)}


def same_letter(found: str | None, target: Any) -> dict[str, Any]:
    """Compares a letter with the target's, each of which may be in brackets."""
    letter, wanted = (None if text is None else _BRACKETS.sub("", str(text)).upper() for text in (found, target))
    return {"correct": bool(letter) and letter == wanted, "extracted": letter}


def _last_found(pattern: str, text: str) -> str | None:
    found = list(re.finditer(pattern, text))
    return found[-1].group(found[-1].re.groups and 1) if found else None


def _bare(text: str) -> str:
    return _UNITS.sub("", text).casefold().rstrip(".!")


def _same_value(given: str, reference: str) -> bool:
    """Says whether the reference is a number, and what is given, or equated, is that one, perhaps with a unit."""
    if not re.fullmatch(r"\s*-?[$\d][\d,.$%\s]*", plain_text(reference)):
        return False
    said = _ASIDE.split(plain_text(given), maxsplit=1)[0].rpartition("=")[2].strip()
    return bool(_AMOUNT.match(said)) and [*read_numbers(said)] == [read_number(reference)]
