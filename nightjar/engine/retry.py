"""Another attempt at a rollout: when, and how long to wait before."""

from __future__ import annotations

from dataclasses import dataclass

from nightjar.calling import backoff_seconds
from nightjar.clients.failures import Failure


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounded, exponential, with jitter; what the endpoint asks for is honoured up to a limit.

    Single requests are made again by the client; an attempt that fails nevertheless can be made anew as a whole.

    Attributes:
        max_retries: further attempts at a rollout after the first; 0 turns retries off.
        initial_seconds: wait before the first retry; doubled for each further one.
        max_seconds: the longest wait, also where ``Retry-After`` asks for more.
    """

    max_retries: int = 0
    initial_seconds: float = 1.0
    max_seconds: float = 60.0

    def wants_another(self, attempts: int, failure: Failure | None) -> bool:
        """Says whether there is to be another attempt after so many, of which the last failed like this."""
        return failure is not None and failure.is_retryable and attempts <= self.max_retries

    def wait_seconds(self, attempts: int, failure: Failure) -> float:
        """Returns how long to wait after so many attempts: what was asked for, or the backoff, and some jitter."""
        asked = failure.retry_after_seconds
        return backoff_seconds(attempts, self.initial_seconds, max_seconds=self.max_seconds, asked_seconds=asked)
