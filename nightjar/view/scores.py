"""How the metrics of a rollout add up to its reward: value × weight of each reward function.

``metadata.json`` has the weights. If they are unknown, or if they do not explain the reward, as in the runs of other
programs, the metrics are shown without weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TOLERANCE = 1e-6
_ROUTE = "env_id"
"""The field of an example's ``info`` with the names that lead to its environment in a group."""


@dataclass(frozen=True)
class Part:
    """A reward function. ``contribution`` is value × weight."""

    name: str
    value: float
    weight: float

    @property
    def contribution(self) -> float:
        return self.value * self.weight


@dataclass(frozen=True)
class Score:
    """``parts`` add up to the reward. ``others`` do not count in it, or it is unknown whether they count."""

    parts: Sequence[Part]
    others: Mapping[str, float | None]

    @property
    def total(self) -> float:
        return math.fsum(part.contribution for part in self.parts)


def score_of(rollout: Mapping[str, Any], weights: object) -> Score:
    """Splits the metrics of a rollout by ``weights``, as ``metadata.json`` has them."""
    metrics: Mapping[str, float | None] = rollout["metrics"] or {}
    known = _weights_of(weights, _route(rollout["info"]))
    parts = [Part(name, value, known[name]) for name, value in metrics.items() if value is not None and known.get(name)]
    score = Score(parts, {name: value for name, value in metrics.items() if not known.get(name)})
    reward = rollout["reward"]
    is_explained = reward is not None and math.isclose(score.total, reward, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return score if parts and is_explained else Score([], metrics)


def _weights_of(weights: object, route: Sequence[str]) -> dict[str, float]:
    """Returns the weights of one environment. In a group of environments, ``route`` leads to it."""
    if not isinstance(weights, Mapping):
        return {}
    own = {name: weight for name, weight in weights.items() if isinstance(weight, float | int)}
    inner = {name: part for name, part in weights.items() if isinstance(part, Mapping)}
    name = route[0] if route else next(iter(inner)) if len(inner) == 1 else None
    return own | _weights_of(inner.get(name), route[1:])


def _route(info: object) -> list[str]:
    found = info.get(_ROUTE) if isinstance(info, Mapping) else None
    return [found] if isinstance(found, str) else [str(name) for name in found] if isinstance(found, list) else []
