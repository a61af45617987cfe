"""How long a rollout takes, and with what."""

from __future__ import annotations

import time
from collections.abc import Sequence


class TimeSpan:
    """A stretch of time; ``start`` and ``end`` are Unix times in seconds, 0.0 until they are known.

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
        """Seconds from start to end; 0.0 while it is open."""
        return max(0.0, self.end - self.start)


class TimeSpans:
    """Several stretches of time, one after another.

    Example:
        >>> TimeSpans([TimeSpan(0.0, 1.0), TimeSpan(5.0, 7.0)]).duration
        3.0
    """

    __slots__ = ("spans",)

    def __init__(self, spans: Sequence[TimeSpan] = ()) -> None:
        self.spans = list(spans)

    @property
    def duration(self) -> float:
        """Seconds of all of them."""
        return sum(span.duration for span in self.spans)

    def measure(self) -> _Measure:
        """Adds the time that a ``with`` block takes, also where it raises."""
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
    """How long a rollout took: the keys ``generation_ms``, ``scoring_ms``, ``total_ms``, and the spans behind them.

    Attributes:
        setup: in ``setup_state``.
        generation: from the first to the last moment of the rollout.
        model: in model calls.
        env: in ``env_response``.
        scoring: in the rubric.

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
        """When the rollout began, as a Unix time in seconds."""
        return self["start_time"]

    @property
    def total(self) -> float:
        """Seconds of generation and scoring."""
        return self["total_ms"] / 1000

    @property
    def overhead(self) -> float:
        """Seconds of generation that were spent neither in set-up, nor in the model, nor in the environment."""
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
        """Sets the generation time of a rollout that is read back from disk."""
        self._set(generation_ms, 0.0)

    def _set(self, generation_ms: float, scoring_ms: float) -> None:
        self["generation_ms"] = round(generation_ms, 3)
        self["scoring_ms"] = round(scoring_ms, 3)
        self["total_ms"] = round(generation_ms + scoring_ms, 3)
