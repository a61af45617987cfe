"""Converts scores of Inspect to a reward and metrics.

The value of a score is a number, a bool, a text (``C`` correct, ``P`` partial, ``I`` incorrect, ``N`` no answer), or an
object or list of such values. NaN means unscored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from pydantic import Field

from nightjar.importers.reading import Count, Lenient, as_object, at

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class _Metric(Lenient):
    value: float | None = None


class ReportedScore(Lenient):
    """The metrics of a scorer, or of one field of its values, as the log reports them for reduced epochs."""

    name: str = ""
    scorer: str = ""
    reducer: str | None = None
    scored_samples: Count | None = None
    unscored_samples: Count | None = None
    metrics: dict[str, _Metric] = Field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Returns the fields, with the metrics as numbers."""
        return {**self.model_dump(), "metrics": {name: metric.value for name, metric in self.metrics.items()}}

    @property
    def mean(self) -> float | None:
        """The mean over the samples; None if it is not reported, or for epochs that are reduced otherwise."""
        means = (self.metrics[name].value for name in ("mean", "accuracy") if name in self.metrics)
        return next(means, None) if self.reducer in {None, "mean"} else None


class Results(Lenient):
    """The scores of a log."""

    total_samples: Count | None = None
    completed_samples: Count | None = None
    scores: list[ReportedScore] = Field(default_factory=list)
    headline_scorer: str | None = at("headline", "scorer")
    headline_score: str | None = at("headline", "score")


class Reward:
    """Finds the reward of each sample of a log: the score that Inspect's headline metric is about, or else the first.

    If the value of this score is an object, the headline also names one of its fields. ``reported`` is the mean of the
    reward as the log reports it, or None.
    """

    def __init__(self, results: Results) -> None:
        first = results.scores[0] if results.scores else ReportedScore()
        self._scorer = results.headline_scorer or first.scorer
        self._field = results.headline_score or first.name
        own = (one for one in results.scores if (one.scorer, one.name) == (self._scorer, self._field))
        self.reported = next((one.mean for one in own if one.mean is not None), None)

    def of(self, scores: Mapping[str, Any]) -> float | None:
        """Returns the reward; None for a sample without this score, or whose score is unscored or no number."""
        if self._scorer:
            score = scores.get(self._scorer) or scores.get(self._field)
        else:
            score = next(iter(scores.values()), None)
        value = as_object(score).get("value")
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
    value = as_object(score).get("value")
    if isinstance(value, dict):
        yield from ((f"{scorer}_{name}", each) for name, each in value.items())
    elif isinstance(value, list):
        yield from ((f"{scorer}_{position}", each) for position, each in enumerate(value))
    else:
        yield scorer, value
