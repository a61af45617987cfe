"""Time and tokens of a rollout."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict, cast

from nightjar.core.messages import Usage

_NUMBER = (int, float)


class TimeSpan:
    """A span of time. ``start`` and ``end`` are Unix times in seconds, and 0.0 until they are known.

    Example:
        >>> TimeSpan(10.0, 12.5).duration
        2.5
    """

    __slots__ = ("end", "start")

    def __init__(self, start: float = 0.0, end: float = 0.0) -> None:
        self.start = start
        self.end = end

    @property
    def duration(self) -> float:
        """Seconds from start to end; 0.0 while the span is open."""
        return max(0.0, self.end - self.start)


class TimeSpans:
    """Several spans of time, one after another.

    Example:
        >>> TimeSpans([TimeSpan(0.0, 1.0), TimeSpan(5.0, 7.0)]).duration
        3.0
    """

    __slots__ = ("spans",)

    def __init__(self, spans: Sequence[TimeSpan] = ()) -> None:
        self.spans = list(spans)

    @property
    def duration(self) -> float:
        """The sum of all spans, in seconds."""
        return sum(span.duration for span in self.spans)

    def measure(self) -> _Measure:
        """Adds the duration of a ``with`` block, even if the block raises."""
        return _Measure(self.spans)


class _Measure:
    __slots__ = ("_span", "_spans")

    def __init__(self, spans: list[TimeSpan]) -> None:
        self._spans = spans

    def __enter__(self) -> None:
        self._span = TimeSpan(time.time())

    def __exit__(self, *_: object) -> None:
        self._span.end = time.time()
        self._spans.append(self._span)


class RolloutTiming(dict[str, float]):
    """The time of a rollout in milliseconds, and the spans behind it.

    ``generation`` is the time of the rollout without scoring. ``setup`` and ``env`` are the times of its calls of
    ``setup_state`` and ``env_response``.

    Example:
        >>> timing = RolloutTiming()
        >>> sorted(timing)
        ['generation_ms', 'scoring_ms', 'start_time', 'total_ms']
    """

    __slots__ = ("env", "generation", "model", "scoring", "setup")

    def __init__(self) -> None:
        now = time.time()
        super().__init__(start_time=now, generation_ms=0.0, scoring_ms=0.0, total_ms=0.0)
        self.setup = TimeSpan()
        self.generation = TimeSpan(now)
        self.model = TimeSpans()
        self.env = TimeSpans()
        self.scoring = TimeSpan()

    @property
    def start_time(self) -> float:
        """The start of the rollout, as a Unix time in seconds."""
        return self["start_time"]

    @property
    def total(self) -> float:
        """Seconds of generation and scoring."""
        return self["total_ms"] / 1000

    @property
    def overhead(self) -> float:
        """Seconds of generation that were not spent in set-up, model calls or the environment."""
        return max(0.0, self.generation.duration - self.setup.duration - self.model.duration - self.env.duration)

    def end_generation(self) -> None:
        """Closes the generation span."""
        self.generation.end = time.time()
        self._set(self.generation.duration * 1000, self["scoring_ms"])

    def add_scoring(self, start: float) -> None:
        """Adds a scoring span from ``start`` (Unix time in seconds) to now."""
        self.scoring = TimeSpan(start, time.time())
        self._set(self["generation_ms"], self["scoring_ms"] + self.scoring.duration * 1000)

    def restore(self, generation_ms: float) -> None:
        """Sets the generation time of a rollout that is read from disk."""
        self._set(generation_ms, 0.0)

    def _set(self, generation_ms: float, scoring_ms: float) -> None:
        self["generation_ms"] = round(generation_ms, 3)
        self["scoring_ms"] = round(scoring_ms, 3)
        self["total_ms"] = round(generation_ms + scoring_ms, 3)


class TokenUsage(TypedDict):
    """Tokens of a rollout. In records, ``input_tokens`` and ``output_tokens`` exclude responses from the cache.

    The final counts split the complete conversation into the model's input and the model's own text.
    """

    input_tokens: float
    output_tokens: float
    cached_input_tokens: NotRequired[float]
    cached_output_tokens: NotRequired[float]
    final_input_tokens: NotRequired[float]
    final_output_tokens: NotRequired[float]


class UsageTracker:
    """Counts the tokens of a rollout's model calls. ``usage`` is a read-only view of the counts."""

    __slots__ = ("_cached", "_counts", "_is_known", "usage")

    def __init__(self) -> None:
        self._counts: dict[str, float] = {"input_tokens": 0, "output_tokens": 0}
        self._cached: dict[str, float] = {"input_tokens": 0, "output_tokens": 0}
        self._is_known = False
        self.usage: Mapping[str, float] = MappingProxyType(self._counts)

    def increment(self, input_tokens: float = 0, output_tokens: float = 0, *, is_cached: bool = False) -> None:
        """Adds the tokens of a call or of a cached response. Raises ``ValueError`` if a count is negative."""
        if input_tokens < 0 or output_tokens < 0:
            raise ValueError(f"Tokens cannot be negative, found {input_tokens} and {output_tokens}")
        self._counts["input_tokens"] += input_tokens
        self._counts["output_tokens"] += output_tokens
        if is_cached:
            self._cached["input_tokens"] += input_tokens
            self._cached["output_tokens"] += output_tokens
        self._is_known = True

    def record(self) -> TokenUsage | None:
        """Returns the counts for a record. Tokens of cached responses are counted separately from paid tokens."""
        if not any(self._cached.values()) or not self._is_known:
            return self.snapshot()
        paid = {name: count - self._cached[name] for name, count in self._counts.items()}
        cached = {f"cached_{name}": count for name, count in self._cached.items()}
        return cast("TokenUsage", paid | cached)

    def restore(self, recorded: Mapping[str, float]) -> None:
        for prefix in ("", "cached_"):
            counts = {name: recorded.get(prefix + name) or 0 for name in self._counts}
            self.increment(**counts, is_cached=bool(prefix))

    def snapshot(self) -> TokenUsage | None:
        return TokenUsage(**self._counts) if self._is_known else None  # type: ignore[typeddict-item]


def usage_counts(usage: Any) -> tuple[int, int]:
    if type(usage) is Usage:
        return usage.prompt_tokens, usage.completion_tokens
    return _count(usage, "prompt_tokens", "input_tokens"), _count(usage, "completion_tokens", "output_tokens")


def _count(usage: Any, *names: str) -> int:
    get = usage.get if isinstance(usage, Mapping) else partial(getattr, usage)
    for name in names:
        value = get(name, None)
        if isinstance(value, _NUMBER) and value:
            return max(0, int(value))
    return 0


def context_usage(trajectory: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the tokens of the complete conversation, from the last step with usage. Without usage, it is empty."""
    usages = [getattr(step.get("response"), "usage", None) for step in trajectory]
    counts = [usage_counts(usage) for usage in usages if usage is not None]
    if not counts:
        return {}
    written = sum(output for _, output in counts)
    return {"final_input_tokens": max(0, sum(counts[-1]) - written), "final_output_tokens": written}
