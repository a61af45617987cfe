"""How far a run is: plain counters that displays read when they like."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from nightjar.errors import error_text


@dataclass(slots=True)
class Progress:
    """Counters of one run. Nothing is called per rollout: who shows them polls.

    Attributes:
        total: rollouts that the run consists of.
        already_done: of these, scored before this session (a resume).
        generated: rollouts whose generation ended in this session.
        scored: rollouts scored in this session.
        failed: rollouts that ended with an error in this session.
        requests: made in this session, those of judges included.
        refused: of these, because they were too many.
        retries: requests made again, and attempts after the first.
        input_tokens, output_tokens: of the answers in this session, judges' included.
        errors: class of errors that rollouts ended with in this session, to how many did and what the last one said.
        last_failure: what a request failed with last; empty before the first.
        reward_sum: of the rollouts scored in this session and before.
        reward_count: how many these are.
        started_at: Unix time in seconds.
    """

    total: int = 0
    already_done: int = 0
    generated: int = 0
    scored: int = 0
    failed: int = 0
    requests: int = 0
    refused: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)
    last_failure: str = ""
    reward_sum: float = 0.0
    reward_count: int = 0
    started_at: float = field(default_factory=time.time)

    def note_error(self, error: BaseException) -> None:
        """Takes note of what a rollout ended with."""
        kind = type(error.__cause__ or error).__name__
        self.errors[kind] = self.errors.get(kind, (0, ""))[0] + 1, error_text(error)

    @property
    def done(self) -> int:
        """Rollouts with a result, good or bad."""
        return self.already_done + self.scored + self.failed

    @property
    def unscored(self) -> int:
        """Rollouts that are generated in this session and wait for their group, or for the rubric."""
        return max(0, self.generated - self.scored - self.failed)

    @property
    def avg_reward(self) -> float | None:
        """The mean reward so far; None before the first."""
        return self.reward_sum / self.reward_count if self.reward_count else None

    @property
    def elapsed_seconds(self) -> float:
        """How long this session runs."""
        return max(1e-9, time.time() - self.started_at)

    @property
    def rate(self) -> float:
        """Rollouts a second in this session."""
        return (self.scored + self.failed) / self.elapsed_seconds

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this rate; None while that cannot be said."""
        return (self.total - self.done) / self.rate if self.scored + self.failed else None
