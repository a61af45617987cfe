"""Faults between a client and a model server, and their rates."""

from __future__ import annotations

import itertools
import math
import random
import time
from dataclasses import dataclass
from enum import StrEnum

from nightjar.errors import ConfigError


class FaultKind(StrEnum):
    """A fault that replaces a normal response."""

    RATE_LIMITED = "rate_limited"
    """Status 429, immediately."""
    SERVER_ERROR = "server_error"
    """Status 500."""
    DROPPED = "dropped"
    """The connection is closed without a response."""
    MALFORMED = "malformed"
    """Status 200 with a body that is not JSON."""
    SLOW = "slow"
    """The headers arrive immediately. The body arrives in small pieces and is complete in the end."""
    OVERLOADED = "overloaded"
    """Status 529 in Anthropic's protocol, 503 in the others, immediately."""


_PROMPT_REFUSALS = frozenset({FaultKind.RATE_LIMITED, FaultKind.OVERLOADED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of a model server; by default, there are none.

    A rate is the share of requests, from 0 to 1, with this fault (see ``FaultKind``). A request has at most one fault,
    so the sum of all rates is at most 1. Invalid requests (a wrong key, no messages) have no fault.

    Attributes:
        latency_ms: time until a response; the statuses 429, 503 and 529 come immediately.
        jitter_ms: largest random addition to the latency.
        retry_after_seconds: the header ``Retry-After`` of a 429, 503 or 529; None means no header.
        slow_seconds: time in which a slow body is sent.
        seed: the same seed gives the same faults in the same order.
        requests_per_second: requests above this rate get status 429 with ``Retry-After``; bursts of one second's
            requests are allowed. 0 means no limit.

    Example:
        >>> faults = Faults(latency_ms=200, rate_429=0.05, retry_after_seconds=1)
    """

    latency_ms: float = 0
    jitter_ms: float = 0
    rate_429: float = 0
    retry_after_seconds: int | None = None
    rate_500: float = 0
    rate_dropped: float = 0
    rate_malformed: float = 0
    rate_slow: float = 0
    slow_seconds: float = 10
    seed: int = 0
    rate_overloaded: float = 0
    requests_per_second: float = 0

    def __post_init__(self) -> None:
        for name in ("latency_ms", "jitter_ms", "retry_after_seconds", "slow_seconds", "requests_per_second"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}. It cannot be negative.")
        for kind, rate in self.rates.items():
            if not 0 <= rate <= 1:
                raise ConfigError(f"The rate of {kind} is {rate}. A rate lies between 0 and 1.")
        if sum(self.rates.values()) > 1 + 1e-9:
            raise ConfigError(
                f"The fault rates add up to {sum(self.rates.values()):g}. "
                "A request has at most one fault, so the sum is at most 1."
            )

    @property
    def rates(self) -> dict[FaultKind, float]:
        """The share of requests with each kind of fault."""
        return {
            FaultKind.RATE_LIMITED: self.rate_429,
            FaultKind.SERVER_ERROR: self.rate_500,
            FaultKind.DROPPED: self.rate_dropped,
            FaultKind.MALFORMED: self.rate_malformed,
            FaultKind.SLOW: self.rate_slow,
            FaultKind.OVERLOADED: self.rate_overloaded,
        }


@dataclass(frozen=True, slots=True)
class Fate:
    """Latency of one request, its fault (None if it has no fault), and the wait that a refusal demands."""

    latency_seconds: float
    fault: FaultKind | None
    retry_after_seconds: int | None = None


class TokenBucket:
    """A rate limit that allows bursts of one second's requests."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._tokens = self._most = max(1.0, per_second)
        self._filled_at = time.monotonic()

    def seconds_until_free(self) -> float:
        """Takes a token and returns 0, or returns the seconds until the next token."""
        now = time.monotonic()
        self._tokens = min(self._most, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._per_second
        self._tokens -= 1
        return 0.0


class FaultInjector:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._random = random.Random(faults.seed)  # noqa: S311 - repeatable, not secret
        self._bucket = TokenBucket(faults.requests_per_second) if faults.requests_per_second else None
        self._limits = list(zip(faults.rates, itertools.accumulate(faults.rates.values()), strict=True))

    def draw(self) -> Fate:
        if self._bucket is not None and (seconds := self._bucket.seconds_until_free()):
            return Fate(0, FaultKind.RATE_LIMITED, math.ceil(seconds))
        jitter_ms = self._faults.jitter_ms * self._random.random()
        draw = self._random.random()
        fault = next((kind for kind, limit in self._limits if draw < limit), None)
        if fault in _PROMPT_REFUSALS:
            return Fate(0, fault, self._faults.retry_after_seconds)
        return Fate((self._faults.latency_ms + jitter_ms) / 1000, fault)
