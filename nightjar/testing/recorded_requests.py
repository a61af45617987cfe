"""The last requests that a model server got, for tests that look at what a client really sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from multidict import CIMultiDict

from nightjar.testing.model_request import Fields

_CREDENTIALS = ("Authorization", "X-Api-Key", "Api-Key", "Cookie", "Proxy-Authorization")
"""The headers whose values are nobody's business."""


class RecordedRequest(NamedTuple):
    """A request as it came in.

    Attributes:
        path: such as ``/v1/chat/completions``.
        headers: names in any case; those that carry credentials are left out.
        body: the JSON object that was posted.

    Example:
        >>> RecordedRequest("/tokenize", {}, {"prompt": "Hi"}).body["prompt"]
        'Hi'
    """

    path: str
    headers: Mapping[str, str]
    body: Fields


class RequestLog:
    """Keeps the last ``size`` requests; with 0, none."""

    def __init__(self, size: int) -> None:
        self.is_on = size > 0
        self._requests: deque[RecordedRequest] = deque(maxlen=size)

    def add(self, path: str, headers: Mapping[str, str], body: Fields) -> None:
        """Keeps a request, in place of the oldest."""
        kept = CIMultiDict(headers)
        for name in _CREDENTIALS:
            kept.popall(name, None)
        self._requests.append(RecordedRequest(path, kept, body))

    def all(self) -> list[RecordedRequest]:
        """Returns the requests that are kept, oldest first."""
        return list(self._requests)
