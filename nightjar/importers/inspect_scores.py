"""Converts scores of Inspect to a reward and metrics.

The value of a score is a number, a bool, a text (``C`` correct, ``P`` partial, ``I`` incorrect, ``N`` no answer), or an
object or list of such values. NaN means unscored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class Reward:
    """Finds the reward of each sample of a log: the score that Inspect's headline metric is about, or else the first.

    If the value of this score is an object, the headline also names one of its fields.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        results = _object(header.get("results"))
        first = next((score for score in results.get("scores") or () if isinstance(score, dict)), {})
        headline = _object(results.get("headline"))
        self._scorer = headline.get("scorer") or first.get("scorer")
        self._field = headline.get("score") or first.get("name")
        self.reported = _reported_mean(results, self._scorer, self._field)

    def of(self, scores: Mapping[str, Any]) -> float | None:
        """Returns the reward; None for a sample without this score, or whose score is unscored or no number."""
        if self._scorer is None:
            score = next(iter(scores.values()), None)
        else:
            score = scores.get(self._scorer) or scores.get(str(self._field))
        value = _object(score).get("value")
        if isinstance(value, dict):
            value = value.get(self._field) if self._field else next(iter(value.values()), None)
        return number(value)


def metrics(scores: Mapping[str, Any]) -> dict[str, float]:
    """Returns the scores that are numbers by scorer, or by ``SCORER_FIELD`` if a scorer gives several values."""
    values = ((name, value) for scorer, score in scores.items() for name, value in _values(scorer, score))
    return {name: found for name, value in values if (found := number(value)) is not None}


def number(value: Any) -> float | None:
    """Returns a value as Inspect's ``value_to_float`` does; None for NaN, objects, lists and other texts.

    Inspect counts objects, lists and other texts as 0 in a mean, with a warning.

    Example:
        >>> number("C"), number(True), number("no"), number("0.25"), number("B"), number(float("nan"))
        (1.0, 1.0, 0.0, 0.25, None, None)
    """
    if isinstance(value, str):
        known = _GRADES.get(value, _WORDS.get(value.lower()))
        if known is not None:
            return known
    elif not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if isfinite(found) else None


def _values(scorer: str, score: Any) -> Iterator[tuple[str, Any]]:
    value = _object(score).get("value")
    if isinstance(value, dict):
        yield from ((f"{scorer}_{name}", each) for name, each in value.items())
    elif isinstance(value, list):
        yield from ((f"{scorer}_{position}", each) for position, each in enumerate(value))
    else:
        yield scorer, value


def _reported_mean(results: Mapping[str, Any], scorer: str | None, name: str | None) -> float | None:
    """Returns the mean of the reward that the log reports; None if it reports none, or one of reduced epochs."""
    for score in results.get("scores") or ():
        if (score.get("scorer"), score.get("name")) == (scorer, name) and score.get("reducer") in {None, "mean"}:
            means = _object(score.get("metrics"))
            return next(
                (number(_object(means[key]).get("value")) for key in ("mean", "accuracy") if key in means), None
            )
    return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
