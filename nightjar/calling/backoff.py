"""How long to wait before another try: the one place for it."""

from __future__ import annotations

import random

_MAX_DOUBLINGS = 30


def backoff_seconds(
    attempts: int,
    initial_seconds: float,
    *,
    max_seconds: float,
    asked_seconds: float | None = None,
    jitter_seconds: float | None = None,
    factor: float = 2.0,
) -> float:
    """Returns how long to wait after so many attempts: longer each time, with some jitter, and within a limit.

    Args:
        attempts: made so far, at least one.
        initial_seconds: after the first.
        max_seconds: the longest wait.
        asked_seconds: what the other side asks for instead; None where it does not.
        jitter_seconds: what chance adds at the most; as much as the first wait unless given.
        factor: by which each further wait is longer.

    Example:
        >>> [backoff_seconds(attempts, 0.5, max_seconds=30.0, jitter_seconds=0) for attempts in (1, 2, 3, 9)]
        [0.5, 1.0, 2.0, 30.0]
    """
    backoff = initial_seconds * factor ** min(attempts - 1, _MAX_DOUBLINGS)
    wanted = backoff if asked_seconds is None else asked_seconds
    jitter = initial_seconds if jitter_seconds is None else jitter_seconds
    return min(wanted + random.uniform(0.0, jitter), max_seconds)  # noqa: S311 - it spreads retries
