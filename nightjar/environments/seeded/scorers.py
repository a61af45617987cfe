"""The scorers of NeMo Evaluator that need only texts: each returns a dict with ``correct`` and the extracted answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from nightjar.core.rollout.state import State
from nightjar.environments.parsers import last_text
from nightjar.environments.rubrics import Rubric
from nightjar.environments.scorers.numbers import last_number, plain_text, read_number, read_numbers
from nightjar.environments.scorers.texts import contains_text, same_text, stated_answer, stated_letter
from nightjar.environments.seeded.eval_environment import ScorerInput
from nightjar.errors import ConfigError

PREFIX = "scorer:"
"""The beginning of the name of a metric that a scorer gives in addition to the environment's rubric."""
_BRACKETS = re.compile(r"[\s()\[\].]+")
_AMOUNT = re.compile(r"-?\s*[$€£¥]?\s*-?[\d.]")
_ASIDE = re.compile(r"[.!?](?=\s|$)|\s\(|[:;\[]\s|,\s(?=(?:as|which|so)\b)|\b(?:in|per|because|since|of|for)\b")
"""The beginning of a remark after an answer."""
_UNITS = re.compile(r"[\s$%]|(?<=\d),(?=\d{3}(?!\d))")


def exact_match(sample: ScorerInput) -> dict[str, Any]:
    """Compares the response with the target, ignoring case, articles and punctuation."""
    return {"correct": same_text(sample.response, str(sample.target)), "extracted": sample.response.strip()}


def fuzzy_match(sample: ScorerInput) -> dict[str, Any]:
    """Checks whether the response contains the target or the target contains it; any target of a list counts."""
    targets = sample.target if isinstance(sample.target, list | tuple) else [sample.target]
    is_said = any(contains_text(sample.response, str(target)) for target in targets)
    return {"correct": is_said, "extracted": sample.response.strip()}


def mcq_extract(sample: ScorerInput) -> dict[str, Any]:
    return _compared_letters(stated_letter(sample.response, ascii_uppercase), sample.target)


def multichoice_regex(sample: ScorerInput, pattern: str | None = None) -> dict[str, Any]:
    """Compares the letter that the response ends with, or the last match of ``pattern``, with the target's letter."""
    found = (
        stated_letter(sample.response, ascii_uppercase) if pattern is None else _last_found(pattern, sample.response)
    )
    return _compared_letters(found, sample.target)


def answer_line(sample: ScorerInput, pattern: str | None = None) -> dict[str, Any]:
    """Compares the last match of ``pattern``, otherwise the stated answer, with the target as text or number."""
    stated = stated_answer(sample.response)
    found = stated if pattern is None else (_last_found(pattern, sample.response) or stated).strip()
    target = str(sample.target)
    return {
        "correct": bool(found) and (_bare(found) == _bare(target) or _same_value(found, target)),
        "extracted": found,
    }


def numeric_match(sample: ScorerInput) -> dict[str, Any]:
    found, wanted = last_number(sample.response), read_number(str(sample.target))
    return {"correct": found is not None and found == wanted, "extracted": None if found is None else str(found)}


def _compared_letters(found: str | None, target: Any) -> dict[str, Any]:
    letter, wanted = (None if text is None else _BRACKETS.sub("", str(text)).upper() for text in (found, target))
    return {"correct": bool(letter) and letter == wanted, "extracted": letter}


def _last_found(pattern: str, text: str) -> str | None:
    found = list(re.finditer(pattern, text))
    return found[-1].group(found[-1].re.groups and 1) if found else None


def _bare(text: str) -> str:
    return _UNITS.sub("", text).casefold().rstrip(".!")


def _same_value(given: str, reference: str) -> bool:
    """Returns whether both texts are the same number.

    ``given`` may be an equation that ends with the number, and may have a unit.
    """
    if not re.fullmatch(r"\s*-?[$\d][\d,.$%\s]*", plain_text(reference)):
        return False
    amount = _ASIDE.split(plain_text(given), maxsplit=1)[0].rpartition("=")[2].strip()
    return bool(_AMOUNT.match(amount)) and [*read_numbers(amount)] == [read_number(reference)]


_SCORERS: dict[str, Callable[[ScorerInput], dict[str, Any]]] = {
    function.__name__: function
    for function in (exact_match, fuzzy_match, multichoice_regex, mcq_extract, answer_line, numeric_match)
}


def get_scorer(name: str) -> Callable[[ScorerInput], dict[str, Any]]:
    if name not in _SCORERS:
        raise ConfigError(f"Unknown scorer {name!r}. Choose one of: {', '.join(list_scorers())}")
    return _SCORERS[name]


def list_scorers() -> list[str]:
    """Returns the names of the scorers that need only the texts."""
    return sorted(_SCORERS)


def rubric_of_scorers(names: Sequence[str]) -> Rubric:
    """Returns a rubric whose metrics ``scorer:NAME`` have no weight. Raises ``ConfigError`` if a name is unknown."""
    functions = [_metric(name) for name in names]
    return Rubric(funcs=functions, weights=[0.0] * len(functions))


def _metric(name: str) -> Callable[..., float]:
    scorer = get_scorer(name)

    def score(state: State) -> float:
        info = state.get("info")
        metadata = dict(info) if isinstance(info, Mapping) else {}
        response = last_text(state.get("completion") or [])
        return float(scorer(ScorerInput(response, state.get("answer", ""), metadata))["correct"])

    score.__name__ = f"{PREFIX}{name}"
    return score
