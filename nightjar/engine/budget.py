"""``Budget``: what a run, or a suite, may spend on tokens."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

from nightjar.errors import BudgetSpentError

Prices: TypeAlias = tuple[float, float]
"""USD for a million tokens, of prompts and of answers."""


class Budget:
    """What may be spent; asked before each request, told of the tokens of each answer.

    Requests that are in flight when it is spent are paid for all the same.

    Args:
        max_tokens: of prompts and answers, judges' included; None for no limit.
        max_cost_usd: None for no limit.
        prices_of: from a model's name to its prices; None where they are not known, which count as nothing.

    Attributes:
        tokens: spent so far.
        cost_usd: spent so far.

    Example:
        >>> budget = Budget(max_tokens=1000)
        >>> budget.add(900, 150)
        >>> budget.check()
        Traceback (most recent call last):
        ...
        nightjar.errors.BudgetSpentError: The budget is spent: 1,050 of 1,000 tokens (max_total_tokens)
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
        """Raises ``BudgetSpentError`` where nothing is left."""
        if self._max_tokens is not None and self.tokens >= self._max_tokens:
            raise BudgetSpentError(f"The budget is spent: {self} (max_total_tokens)")
        if self._max_cost_usd is not None and self.cost_usd >= self._max_cost_usd:
            raise BudgetSpentError(f"The budget is spent: {self} (max_cost_usd)")

    def __str__(self) -> str:
        """Says what is spent, and of how much."""
        tokens = "" if self._max_tokens is None else f"{self.tokens:,} of {self._max_tokens:,} tokens"
        cost = "" if self._max_cost_usd is None else f"${self.cost_usd:,.4g} of ${self._max_cost_usd:,.4g}"
        return ", ".join(part for part in (tokens, cost) if part)

    def add(self, input_tokens: int, output_tokens: int, model: str = "") -> None:
        """Takes note of tokens, of a model."""
        self.tokens += input_tokens + output_tokens
        if prices := self._prices_of(model):
            self.cost_usd += (input_tokens * prices[0] + output_tokens * prices[1]) / 1e6


shared_budget: ContextVar[Budget | None] = ContextVar("shared_budget", default=None)
"""What the runs that are started in this context may spend together."""
