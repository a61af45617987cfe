"""Tokens: what a rollout's model calls take in and give out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict, cast

_NUMBER = (int, float)


class TokenUsage(TypedDict):
    """Tokens of a rollout.

    Attributes:
        input_tokens, output_tokens: of all model calls; in what is recorded, of those that were paid.
        cached_input_tokens, cached_output_tokens: of those that the cache of answers gave, in what is recorded.
        final_input_tokens, final_output_tokens: of the conversation as it stands at the end: what the model was given,
            and what it said itself.
    """

    input_tokens: float
    output_tokens: float
    cached_input_tokens: NotRequired[float]
    cached_output_tokens: NotRequired[float]
    final_input_tokens: NotRequired[float]
    final_output_tokens: NotRequired[float]


class UsageTracker:
    """Adds up the tokens of a rollout's model calls.

    Attributes:
        usage: the counts so far; follows what is added, and cannot be written.

    Example:
        >>> tracker = UsageTracker()
        >>> tracker.increment(input_tokens=11, output_tokens=7)
        >>> tracker.usage["input_tokens"]
        11
    """

    __slots__ = ("_cached", "_counts", "_is_known", "usage")

    def __init__(self) -> None:
        self._counts: dict[str, float] = {"input_tokens": 0, "output_tokens": 0}
        self._cached: dict[str, float] = {"input_tokens": 0, "output_tokens": 0}
        self._is_known = False
        self.usage: Mapping[str, float] = MappingProxyType(self._counts)

    def increment(self, input_tokens: float = 0, output_tokens: float = 0, *, is_cached: bool = False) -> None:
        """Adds tokens, of a call or of an answer that the cache gave.

        Raises:
            ValueError: a count is negative.
        """
        if input_tokens < 0 or output_tokens < 0:
            raise ValueError(f"Tokens cannot be negative, found {input_tokens} and {output_tokens}")
        self._counts["input_tokens"] += input_tokens
        self._counts["output_tokens"] += output_tokens
        if is_cached:
            self._cached["input_tokens"] += input_tokens
            self._cached["output_tokens"] += output_tokens
        self._is_known = True

    def record(self) -> TokenUsage | None:
        """Returns the counts as they are written down: what was paid, and apart from that what the cache gave."""
        if not any(self._cached.values()) or not self._is_known:
            return self.snapshot()
        paid = {name: count - self._cached[name] for name, count in self._counts.items()}
        cached = {f"cached_{name}": count for name, count in self._cached.items()}
        return cast("TokenUsage", paid | cached)

    def restore(self, recorded: Mapping[str, float]) -> None:
        """Adds what was written down."""
        for prefix in ("", "cached_"):
            counts = {name: recorded.get(prefix + name) or 0 for name in self._counts}
            self.increment(**counts, is_cached=bool(prefix))

    def snapshot(self) -> TokenUsage | None:
        """Returns the counts as they are now; None while no server has named any."""
        return TokenUsage(**self._counts) if self._is_known else None  # type: ignore[typeddict-item]


def usage_counts(usage: Any) -> tuple[int, int]:
    """Returns input and output tokens of a usage object, in OpenAI's or in Anthropic's words."""
    return _count(usage, "prompt_tokens", "input_tokens"), _count(usage, "completion_tokens", "output_tokens")


def _count(usage: Any, *names: str) -> int:
    get = getattr(usage, "get", None) or partial(getattr, usage)
    for name in names:
        value = get(name, None)
        if isinstance(value, _NUMBER) and value:
            return max(0, int(value))
    return 0


def context_usage(trajectory: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the tokens of the conversation at its end: given to the model, and written by it.

    Empty where no step names any. The last step with usage holds the whole conversation.
    """
    usages = [getattr(step.get("response"), "usage", None) for step in trajectory]
    counts = [usage_counts(usage) for usage in usages if usage is not None]
    if not counts:
        return {}
    written = sum(output for _, output in counts)
    return {"final_input_tokens": max(0, sum(counts[-1]) - written), "final_output_tokens": written}
