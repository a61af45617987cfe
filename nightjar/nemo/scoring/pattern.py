"""Scorers that look for an answer: a letter, a line, a number."""

from __future__ import annotations

import re
from typing import Any

from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.scorers import read_number
from nightjar.scorers.choices import stated_letter
from nightjar.scorers.numbers import last_number
from nightjar.scorers.texts import stated_answer

_UNITS = re.compile(r"[\s$%]|(?<=\d),(?=\d{3}(?!\d))")


def multichoice_regex(sample: ScorerInput, pattern: str | None = None) -> dict[str, Any]:
    """Compares the letter that the response ends up with, or the last that ``pattern`` finds, with the target's."""
    found = stated_letter(sample.response) if pattern is None else _last_found(pattern, sample.response)
    letter = None if found is None else found.upper()
    return {"correct": letter is not None and letter == str(sample.target).strip().upper(), "extracted": letter}


def answer_line(sample: ScorerInput, pattern: str | None = None) -> dict[str, Any]:
    """Compares what follows the last "Answer:", or the last line, with the target: as texts, or as numbers."""
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


def _last_found(pattern: str, text: str) -> str | None:
    found = list(re.finditer(pattern, text))
    return found[-1].group(found[-1].re.groups and 1) if found else None


def _bare(text: str) -> str:
    return _UNITS.sub("", text).casefold().rstrip(".")


def _same_value(given: str, reference: str) -> bool:
    """Says whether the reference is a number, and what is given is the same, perhaps with a unit behind it."""
    wanted = read_number(reference) if re.fullmatch(r"\s*-?[$\d][\d,.$%\s]*", reference) else None
    number = re.match(r"-?\s*\$?\s*[\d.]", given.strip())
    return wanted is not None and number is not None and read_number(given) == wanted
