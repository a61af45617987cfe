"""Scorers that compare texts and letters."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.nemo.scoring.pattern import same_letter
from nightjar.scorers.choices import stated_letter
from nightjar.scorers.texts import contains_text, same_text


def exact_match(sample: ScorerInput) -> dict[str, Any]:
    """Compares the response with the target, but for case, articles and punctuation."""
    return {"correct": same_text(sample.response, str(sample.target)), "extracted": sample.response.strip()}


def fuzzy_match(sample: ScorerInput) -> dict[str, Any]:
    """Looks for the target in the response, or the other way round; a list of targets has several right ones."""
    targets = sample.target if isinstance(sample.target, list | tuple) else [sample.target]
    is_said = any(contains_text(sample.response, str(target)) for target in targets)
    return {"correct": is_said, "extracted": sample.response.strip()}


def mcq_extract(sample: ScorerInput) -> dict[str, Any]:
    """Compares the letter of an option, of A to Z, with the target's."""
    return same_letter(stated_letter(sample.response, ascii_uppercase), sample.target)
