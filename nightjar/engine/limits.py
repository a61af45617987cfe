"""Limits of a run or suite: its budget, retries of rollouts, and limits that runs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from nightjar.clients.failures import Failure
from nightjar.core.calling import backoff_seconds
from nightjar.errors import BudgetSpentError

Prices: TypeAlias = tuple[float, float]
"""USD per million tokens of prompts and of responses."""


class Budget:
    """A limit of tokens and cost, checked before each request.

    Judges' requests count. Without a price, a model costs 0.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
        prices_of: Callable[[str], Prices | None] = lambda _: None,
    ) -> None:
        self._max_tokens = max_tokens
        self._max_cost_usd = max_cost_usd
        self._prices_of = prices_of
        self.tokens = 0
        self.cost_usd = 0.0

    def check(self) -> None:
        if self._max_tokens is not None and self.tokens >= self._max_tokens:
            raise BudgetSpentError(f"The budget is spent: {self} (max_total_tokens)")
        if self._max_cost_usd is not None and self.cost_usd >= self._max_cost_usd:
            raise BudgetSpentError(f"The budget is spent: {self} (max_cost_usd)")

    def __str__(self) -> str:
        tokens = "" if self._max_tokens is None else f"{self.tokens:,} of {self._max_tokens:,} tokens"
        cost = "" if self._max_cost_usd is None else f"${self.cost_usd:,.4g} of ${self._max_cost_usd:,.4g}"
        return ", ".join(part for part in (tokens, cost) if part)

    def add(self, input_tokens: int, output_tokens: int, model: str = "") -> None:
        self.tokens += input_tokens + output_tokens
        if prices := self._prices_of(model):
            self.cost_usd += (input_tokens * prices[0] + output_tokens * prices[1]) / 1e6


shared_budget: ContextVar[Budget | None] = ContextVar("shared_budget", default=None)


def fair_shares(limit: int, wanted: Sequence[int]) -> list[int]:
    """Divides a limit evenly among runs. No run gets more than it wants. The first runs share the remainder."""
    shares, left = [0] * len(wanted), limit
    modest_first = sorted(range(len(wanted)), key=lambda run: (wanted[run], -run))
    for runs_left, run in zip(range(len(wanted), 0, -1), modest_first, strict=True):
        shares[run] = min(wanted[run], left // runs_left)
        left -= shares[run]
    return shares


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of failed rollouts, with exponential waits and jitter.

    ``max_seconds`` also bounds a longer ``Retry-After``.
    """

    max_retries: int = 0
    initial_seconds: float = 1.0
    max_seconds: float = 60.0

    def wants_another(self, attempts: int, failure: Failure | None) -> bool:
        return failure is not None and failure.is_retryable and attempts <= self.max_retries

    def wait_seconds(self, attempts: int, failure: Failure) -> float:
        asked = failure.retry_after_seconds
        return backoff_seconds(attempts, self.initial_seconds, max_seconds=self.max_seconds, asked_seconds=asked)
