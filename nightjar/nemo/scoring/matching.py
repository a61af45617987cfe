"""Scorers that compare texts: the names of NeMo Evaluator, with Nightjar's matchers behind them (docs/nemo.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.errors import ConfigError
from nightjar.scorers import read_number
from nightjar.scorers.choices import stated_letter
from nightjar.scorers.json_texts import extract_json
from nightjar.scorers.numbers import last_number
from nightjar.scorers.texts import contains_text, same_text, stated_answer

_UNITS = re.compile(r"[\s$%]|(?<=\d),(?=\d{3}(?!\d))")


def exact_match(sample: ScorerInput) -> dict[str, Any]:
    """Compares the response with the target, but for case, articles and punctuation."""
    return {"correct": same_text(sample.response, str(sample.target)), "extracted": sample.response.strip()}


def fuzzy_match(sample: ScorerInput) -> dict[str, Any]:
    """Looks for the target in the response, or the other way round; a list of targets has several right ones."""
    targets = sample.target if isinstance(sample.target, list | tuple) else [sample.target]
    is_said = any(contains_text(sample.response, str(target)) for target in targets)
    return {"correct": is_said, "extracted": sample.response.strip()}


def multichoice_regex(sample: ScorerInput, pattern: str | None = None) -> dict[str, Any]:
    """Compares the letter that the response ends up with, or the last that ``pattern`` finds, with the target's."""
    found = stated_letter(sample.response) if pattern is None else _last_found(pattern, sample.response)
    letter = None if found is None else found.upper()
    return {"correct": letter is not None and letter == str(sample.target).strip().upper(), "extracted": letter}


def mcq_extract(sample: ScorerInput) -> dict[str, Any]:
    """Compares the letter of an option, of A to Z, with the target's."""
    letter = stated_letter(sample.response, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
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


def validate_json_schema(response: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Says whether the JSON in a response meets a schema, and else what is wrong first.

    Raises:
        ConfigError: the schema is none.
    """
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(f"The JSON schema is none: {error.message}") from error
    value = extract_json(response)
    if value is None and response.strip() != "null":
        return {"correct": False, "valid": False, "error": "there is no JSON in it"}
    problem = next(iter(sorted(kind(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))), None)
    place = "" if problem is None else f"{problem.json_path}: "
    return {"correct": problem is None, "valid": problem is None, "error": problem and f"{place}{problem.message}"}


_SCORERS: dict[str, Callable[[ScorerInput], dict[str, Any]]] = {
    function.__name__: function
    for function in (exact_match, fuzzy_match, multichoice_regex, mcq_extract, answer_line, numeric_match)
}


def get_scorer(name: str) -> Callable[[ScorerInput], dict[str, Any]]:
    """Returns a scorer by its name.

    Raises:
        ConfigError: there is none; those that there are, are listed.
    """
    if name not in _SCORERS:
        raise ConfigError(f"Unknown scorer {name!r}. Choose one of: {', '.join(list_scorers())}")
    return _SCORERS[name]


def list_scorers() -> list[str]:
    """Returns the names of the scorers that need nothing but the texts."""
    return sorted(_SCORERS)


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
