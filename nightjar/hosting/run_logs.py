"""The log of a flow run, as its server gets it: no line twice, none lost.

Lines come late, in batches, from several processes, and many may have one timestamp; the server sorts them by it and
knows no other order. So what counts is how many lines there are: where as many lines were seen as stand before a place,
those that were seen and stand behind it are as many as those that were not and stand before it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from nightjar.hosting.api import PrefectApi

_PAGE = 200
"""As many as Prefect's server gives at once."""
_STEP = 150
"""So many lines back at a time: what comes in meanwhile moves lines on, and the pages are to overlap."""


@dataclass(frozen=True)
class LogLine:
    """A line.

    Attributes:
        at: when it was said.
        level: such as ``INFO``.
        message: it may have several lines itself.
    """

    at: datetime
    level: str
    message: str

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Returns it from what the server says."""
        at = datetime.fromisoformat(record["timestamp"]).astimezone()
        return cls(at, logging.getLevelName(record["level"]), record["message"])

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} | {self.level:<7} | {self.message}"


class RunLog:
    """The log of one flow run, from where somebody begins to read.

    Args:
        api: the server.
        flow_run_id: whose log it is.
    """

    def __init__(self, api: PrefectApi, flow_run_id: str) -> None:
        self._api = api
        self._chosen: dict[str, Any] = {"flow_run_id": {"any_": [flow_run_id]}}
        self._seen: set[str] = set()

    def tail(self, count: int) -> list[LogLine]:
        """Returns the last lines; ``new`` goes on from there, and what is older than these it does not give.

        Raises:
            ServiceError: the server does not answer, or refuses.
        """
        newest: dict[str, dict[str, Any]] = {}
        offset = 0
        while len(newest) < count:
            page = self._page(offset, is_newest_first=True)
            newest.update((record["id"], record) for record in page)
            offset += len(page)
            if len(page) < _PAGE:
                break
        shown = [*newest.values()][:count]
        if len(newest) >= count:
            self._begin_at(shown[-1]["timestamp"])
        self._seen |= {record["id"] for record in shown}
        return [LogLine.of(record) for record in reversed(shown)]

    def new(self) -> Iterator[LogLine]:
        """Yields the lines that were not given yet, those that came late too; errors as for ``tail``."""
        behind: dict[str, dict[str, Any]] = {}
        offset = len(self._seen)
        while True:
            page = self._page(offset)
            behind.update((record["id"], record) for record in page)
            offset += len(page)
            if len(page) < _PAGE:
                break
        fresh = {key: record for key, record in behind.items() if key not in self._seen}
        fresh |= self._late(len(behind) - len(fresh), behind.keys())
        self._seen |= fresh.keys()
        yield from sorted(map(LogLine.of, fresh.values()), key=lambda line: line.at)

    def _late(self, count: int, behind: Collection[str]) -> dict[str, dict[str, Any]]:
        """Returns so many lines that were not seen yet and stand before as many as were, looking from there back."""
        late: dict[str, dict[str, Any]] = {}
        first = len(self._seen)
        while len(late) < count and first > 0:
            first = max(0, first - _STEP)
            page = {record["id"]: record for record in self._page(first)}
            late |= {key: record for key, record in page.items() if key not in self._seen and key not in behind}
        return late

    def _begin_at(self, timestamp: str) -> None:
        """Leaves out all that is older, and what is there of that moment."""
        self._chosen = {**self._chosen, "timestamp": {"after_": timestamp}}
        moment = {**self._chosen, "timestamp": {"after_": timestamp, "before_": timestamp}}
        offset = 0
        while page := self._page(offset, chosen=moment):
            self._seen |= {record["id"] for record in page}
            offset += len(page)

    def _page(
        self, offset: int, limit: int = _PAGE, *, is_newest_first: bool = False, chosen: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        sort = "TIMESTAMP_DESC" if is_newest_first else "TIMESTAMP_ASC"
        asked = {"logs": chosen or self._chosen, "offset": offset, "limit": limit, "sort": sort}
        return self._api.post("/logs/filter", asked) or []
