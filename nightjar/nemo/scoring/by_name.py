"""The scorers that need nothing but the texts, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.errors import ConfigError
from nightjar.nemo.scoring.pattern import answer_line, multichoice_regex, numeric_match
from nightjar.nemo.scoring.text import exact_match, fuzzy_match, mcq_extract

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
