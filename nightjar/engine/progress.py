"""Progress of a run: plain counters that displays poll."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from nightjar.core.secrecy import error_text
from nightjar.core.text import one_line


@dataclass(slots=True)
class Progress:
    """Counters of one run. A session is the part of the run in one process.

    Requests include judges' requests; rewards include earlier sessions. ``errors`` maps an error class to its number of
    rollouts and last message. ``waits_until`` is set while the endpoint has not answered yet.
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
    waits_until: float | None = None
    reward_sum: float = 0.0
    reward_count: int = 0
    started_at: float = field(default_factory=time.time)

    def note_error(self, error: BaseException) -> None:
        kind = type(error.__cause__ or error).__name__
        self.errors[kind] = self.errors.get(kind, (0, ""))[0] + 1, error_text(error)

    @property
    def waiting(self) -> str:
        """Says why and how much longer the run waits for an endpoint that does not answer yet.

        The text is empty if the endpoint answers.
        """
        if self.waits_until is None or (left := self.waits_until - time.time()) <= 0:
            return ""
        return f"for the endpoint, {left / 60:.1f} minutes left: {one_line(self.last_failure, 200)}"

    @property
    def done(self) -> int:
        return self.all_scored + self.failed

    @property
    def all_scored(self) -> int:
        return self.already_done + self.scored

    @property
    def unscored(self) -> int:
        return max(0, self.generated - self.scored - self.failed)

    @property
    def avg_reward(self) -> float | None:
        return self.reward_sum / self.reward_count if self.reward_count else None

    @property
    def elapsed_seconds(self) -> float:
        return max(1e-9, time.time() - self.started_at)

    @property
    def rate(self) -> float:
        return (self.scored + self.failed) / self.elapsed_seconds

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.rate if self.scored + self.failed else None
