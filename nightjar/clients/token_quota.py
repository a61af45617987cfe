"""Spends an endpoint's quota of tokens per minute evenly and without refusals. Headers announce the quota."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_FORMS = (
    "x-ratelimit-{}-tokens",
    "anthropic-ratelimit-tokens-{}",
    "anthropic-ratelimit-input-tokens-{}",
    "anthropic-ratelimit-output-tokens-{}",
)
_NAMES = tuple((form.format("limit"), form.format("remaining")) for form in _FORMS)
_MEASURED_ANSWERS = 8
_NEARLY_FULL = 0.95
_NEWEST = 0.3
_MARGIN = 4
"""The reserve, in requests of the usual cost. It is kept because the next request may cost more."""
_SHORTEST_SECONDS = 0.001


class _Heard(NamedTuple):
    remaining: float
    at: float
    answers: int


class TokenQuota:
    """The remaining tokens: the endpoint's last report minus an estimate for the requests in flight.

    Endpoints count tokens when a request arrives (OpenAI, which counts ``max_tokens``) or when tokens are generated
    (Anthropic). The cost of a request is therefore measured, as the tokens that were used between two reports.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.cost = 0.0
        self._per_second = limit / 60
        self._level, self._at = limit, 0.0
        self._answers = 0
        self._before: _Heard | None = None

    def heard(self, remaining: float, others_in_flight: int, now: float) -> None:
        """Records a report that came with a response."""
        self._answers += 1
        if not self.cost:
            self.cost = max(1.0, (self.limit - remaining) / (others_in_flight + 1))
        before = self._before
        if before is None or self._answers - before.answers >= _MEASURED_ANSWERS:
            self._before = _Heard(remaining, now, self._answers)
            if before is not None and max(before.remaining, remaining) < _NEARLY_FULL * self.limit:
                charged = before.remaining + (now - before.at) * self._per_second - remaining
                measured = max(1.0, charged / (self._answers - before.answers))
                self.cost += _NEWEST * (measured - self.cost)
        self._level, self._at = remaining - self.cost * others_in_flight, now

    def seconds_until_free(self, now: float) -> float:
        """Takes the tokens of a request and returns 0.

        If there are too few, returns the seconds until there are enough.
        """
        self._level = min(self.limit, self._level + (now - self._at) * self._per_second)
        self._at = now
        missing = min(_MARGIN * self.cost, self.limit / 2) - self._level
        if missing > 0:
            return max(_SHORTEST_SECONDS, missing / self._per_second)
        self._level -= self.cost
        return 0.0


def announced_quota(headers: Mapping[str, Any]) -> tuple[float, float] | None:
    """Returns the limit and remainder of the most used quota, or None if the headers announce no quota."""
    found = []
    for limit, remaining in _NAMES:
        if limit in headers and remaining in headers:
            with suppress(TypeError, ValueError):
                found.append((float(headers[limit]), float(headers[remaining])))
    found = [(limit, max(0.0, rest)) for limit, rest in found if limit > 0]
    return min(found, key=lambda quota: quota[1] / quota[0], default=None)
