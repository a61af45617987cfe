"""The counts of a model server, and the server's last requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from multidict import CIMultiDict

from nightjar.core.secret_signs import is_secret_name
from nightjar.model_server.faults import FaultKind
from nightjar.model_server.model_request import Fields


def _no_faults() -> dict[FaultKind, int]:
    return dict.fromkeys(FaultKind, 0)


@dataclass(slots=True)
class ServerStats:
    """Counts of requests to the model, without ``/health`` and other routes.

    A slow body counts twice: as a fault, and as answered when it is sent completely. ``refused`` requests are invalid.
    The clients of ``abandoned`` requests disconnected.
    """

    received: int = 0
    answered: int = 0
    refused: int = 0
    abandoned: int = 0
    faults: dict[FaultKind, int] = field(default_factory=_no_faults)
    in_flight: int = 0
    peak_in_flight: int = 0
    questions: Counter[str] = field(default_factory=Counter)

    def count_arrival(self) -> None:
        """Counts a new request."""
        self.received += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def count_answer(self, question: str) -> None:
        """Counts an answer that was sent completely."""
        self.answered += 1
        self.questions[question] += 1

    def reset(self) -> None:
        """Resets the counts; requests in flight count as new."""
        self.received = self.peak_in_flight = self.in_flight
        self.answered = self.refused = self.abandoned = 0
        self.faults = _no_faults()
        self.questions = Counter()


class RecordedRequest(NamedTuple):
    """A request: its path, its headers (case-insensitive, without credentials), and its JSON body.

    Example:
        >>> RecordedRequest("/tokenize", {}, {"prompt": "Hi"}).body["prompt"]
        'Hi'
    """

    path: str
    headers: Mapping[str, str]
    body: Fields


def recorded_request(path: str, headers: Mapping[str, str], body: Fields) -> RecordedRequest:
    kept = CIMultiDict((name, value) for name, value in headers.items() if not is_secret_name(name))
    return RecordedRequest(path, kept, body)
