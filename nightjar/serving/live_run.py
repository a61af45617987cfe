"""A run directory that is still being written: read as it grows, a little at a time, only what was added."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson

from nightjar.runs import RunDirectory

_KEPT_SECONDS = 600.0
_MOST_BYTES = 16 << 20
_RATE_SECONDS = 60.0
_PUBLISHING_SECONDS = 60.0
_SHOWN = 10
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError)
"""What a line raises that is none of a run; it is left out."""


class LiveRun:
    """A run directory that is being written, or was and is not published yet.

    Attributes:
        directory: where it is.
        metadata: what it says of itself.
        rewards: rollout to reward, of those that are scored.
        places: rollout to where its line begins in the results.
        failures: rollout to the chain of error classes, of those that failed for good.
        messages: chain of error classes to what one of the errors says, attempts that were made again included.
        failed_attempts: chain of error classes to how many attempts ended so.
        latest: the last rollouts that were written.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.metadata: Mapping[str, Any] = {}
        self.rewards: dict[tuple[int, int], float] = {}
        self.places: dict[tuple[int, int], int] = {}
        self.failures: dict[tuple[int, int], str] = {}
        self.messages: dict[str, str] = {}
        self.failed_attempts: Counter[str] = Counter()
        self.latest: deque[dict[str, Any]] = deque(maxlen=_SHOWN)
        self.directory = directory
        self._finished: deque[float] = deque()
        self._began = 0.0
        self._results, self._attempts = _Growing(directory.results_path), _Growing(directory.attempts_path)

    @property
    def run_id(self) -> str:
        """Its id."""
        return str(self.metadata.get("run_id") or self.directory.path.name)

    @property
    def env_id(self) -> str:
        """The environment."""
        return str(self.metadata.get("env_id") or "")

    @property
    def model(self) -> str:
        """The model; '' where it does not say."""
        return str(self.metadata.get("model") or "")

    @property
    def rollouts(self) -> int:
        """How many there will be; 0 where it does not say."""
        told = self.metadata.get("rollouts")
        return told if isinstance(told, int) else 0

    @property
    def started_at(self) -> datetime | None:
        """When it was started; None where it does not say."""
        try:
            return datetime.fromisoformat(self.metadata["started_at"]).astimezone(UTC)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    @property
    def status(self) -> str:
        """How it stands; ``crashed`` where its process is gone."""
        return self.directory.status({"status": None, **self.metadata})

    @property
    def is_recent(self) -> bool:
        """Says whether it is running, or has ended so short a time ago that it may not be published yet."""
        if self.metadata.get("status") == "running":
            return self.status == "running"
        return time.time() - self.directory.last_session()[0] < _PUBLISHING_SECONDS

    @property
    def is_settled(self) -> bool:
        """Says whether it has ended so long ago that nothing more is written, and all of it is read."""
        if self.metadata.get("status", "running") == "running" or not (
            self._results.is_read and self._attempts.is_read
        ):
            return False
        try:
            return time.time() - self.directory.last_session()[0] > _KEPT_SECONDS
        except OSError:
            return False

    @property
    def done(self) -> int:
        """How many rollouts are scored, or have failed for good."""
        return len(self.rewards) + len(self.failures)

    @property
    def mean(self) -> float | None:
        """The mean reward so far."""
        return sum(self.rewards.values()) / len(self.rewards) if self.rewards else None

    @property
    def rate(self) -> float:
        """How many attempts end in a minute, by those since the session began, of the last minute at most."""
        now = time.time()
        seconds = min(max(now - self._began, 1.0), _RATE_SECONDS)
        return sum(moment > now - seconds for moment in self._finished) * _RATE_SECONDS / seconds

    def was_replaced(self) -> bool:
        """Says whether its files are not those that were read, as at the end, when they are put in order."""
        return self._results.was_replaced() or self._attempts.was_replaced()

    def look(self) -> None:
        """Reads what was added.

        Raises:
            RunDirectoryError: it is damaged, or gone.
        """
        self.metadata = self.directory.read_metadata()
        with suppress(OSError):
            self._began = self.directory.last_session()[0]
        for place, row in self._results.added():
            with suppress(*_DAMAGE):
                self._take_result(place, row)
        since = time.time() - _RATE_SECONDS
        for _, row in self._attempts.added():
            with suppress(*_DAMAGE):
                self._finished.append(float(row.get("finished_at") or 0))
                if row.get("error"):
                    self.failed_attempts[self._chain(row["error"])] += 1
        while self._finished and self._finished[0] < since:
            self._finished.popleft()

    def _take_result(self, place: int, row: dict[str, Any]) -> None:
        key = (int(row["example_id"]), int(row["rollout_index"]))
        self.places[key] = place
        self.failures.pop(key, None)  # the last line of a rollout counts: it may have been done again
        self.rewards.pop(key, None)
        error, reward = row.get("error"), None
        if error:
            self.failures[key] = self._chain(error)
        elif row.get("reward") is not None:
            self.rewards[key] = reward = float(row["reward"])
        name = str(error.get("error")) if error else ""
        self.latest.appendleft({"example_id": key[0], "rollout_index": key[1], "reward": reward, "error": name})

    def _chain(self, error: Mapping[str, Any]) -> str:
        chain = str(error.get("error_chain_repr") or error.get("error"))
        self.messages.setdefault(chain, str(error.get("message") or ""))
        return chain


class _Growing:
    """A file of JSON lines to which another process appends."""

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._inode = path, 0, 0

    def was_replaced(self) -> bool:
        """Says whether it is another file than the one that was read, or was cut off."""
        try:
            now = self._path.stat()
        except OSError:
            return False
        return bool(self._place) and (now.st_ino != self._inode or now.st_size < self._place)

    @property
    def is_read(self) -> bool:
        """Says whether nothing more is there than was read."""
        try:
            return self._path.stat().st_size <= self._place
        except OSError:
            return True

    def added(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the whole lines that were added, each with its place, so many at once that nobody waits long.

        Damaged ones are left out.
        """
        try:
            with self._path.open("rb") as file:
                self._inode = self._path.stat().st_ino
                file.seek(self._place)
                lines = BytesIO(file.read(_MOST_BYTES) + file.readline())
        except OSError:
            return
        for line in lines:
            if not line.endswith(b"\n"):
                return
            place, self._place = self._place, self._place + len(line)
            try:
                yield place, orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
