"""Runs that are still being written: their directories are read as they grow, a little at a time.

Whoever looks, the files are looked at once a second at most, for all together, and only what was added is read. The
process of the run has no part in it. A page is told by server-sent events while it is seen: hidden ones would hold
the six connections that a browser has to a server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from fastapi.sse import EventSourceResponse, format_sse_event

from nightjar.errors import MissingWarehouseError, NightjarError, RunDirectoryError
from nightjar.runs import RunDirectory, run_directories
from nightjar.serving.templating import page
from nightjar.warehouse import Warehouse

router = APIRouter()

_LOOK_SECONDS = 1.0
_SEARCH_SECONDS = 5.0
_KEPT_SECONDS = 600.0
_STRANDED_SECONDS = 30 * 24 * 3600.0
_MOST_BYTES = 16 << 20
_RATE_SECONDS = 60.0
_PUBLISHING_SECONDS = 60.0
_SHOWN = 10
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError)
"""What a line raises that is none of a run; it is left out."""
_MOST_STRANDED = 20
_PUBLISHED = """
SELECT 1 FROM runs WHERE run_id = $run_id AND coalesce(finished_at >= TRY_CAST($finished_at AS TIMESTAMPTZ), true)
"""


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
        status = str(self.metadata.get("status"))
        return "crashed" if status == "running" and self.directory.is_abandoned() else status

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


class LiveRuns:
    """The runs under way in the folder where the server was started."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[Path, LiveRun] = {}
        self._seen: dict[Path, float] = {}
        self._looked_at = self._searched_at = -_SEARCH_SECONDS

    def recent(self) -> list[LiveRun]:
        """Returns those whose process is there, or that have come to their end just now; the newest first."""
        self._look()
        found = [run for run in self._known.values() if run.is_recent]
        return sorted(found, key=lambda run: str(run.metadata.get("started_at")), reverse=True)

    def stranded(self) -> list[LiveRun]:
        """Returns those that have crashed, or ended and were not published as far as they say; the newest first."""
        recent = self.recent()
        found = [run for run in self._known.values() if run not in recent and not run.metadata.get("published_at")]
        return sorted(found, key=lambda run: str(run.metadata.get("started_at")), reverse=True)

    def find(self, run_id: str, *, is_unpublished: bool = False) -> LiveRun | None:
        """Returns a run that is, or was while this server was there, on disk alone; None where there is none.

        Args:
            run_id: its id.
            is_unpublished: whether it must be here, if anywhere: then it is found as soon as it has begun.
        """
        self._look(is_hurried=is_unpublished)
        return next((run for run in self._known.values() if run.run_id == run_id), None)

    def _look(self, *, is_hurried: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._searched_at >= (_LOOK_SECONDS if is_hurried else _SEARCH_SECONDS):
                self._search()
                self._searched_at = now
            elif now - self._looked_at < _LOOK_SECONDS:
                return
            for path, run in list(self._known.items()):
                if not run.is_settled:
                    self._look_at(path, LiveRun(run.directory) if run.was_replaced() else run)
            self._looked_at = time.monotonic()

    def _look_at(self, path: Path, run: LiveRun) -> None:
        try:
            run.look()
            self._known[path] = run
        except RunDirectoryError:
            del self._known[path]

    def _search(self) -> None:
        """Looks for runs that are not published, among the metadata that are new; forgets those that now are."""
        for directory in run_directories():
            metadata = directory.path / "metadata.json"
            try:
                written = metadata.stat().st_mtime
                is_new = self._seen.get(directory.path) != written
                if is_new and _may_be_unpublished(orjson.loads(metadata.read_bytes()), written):
                    self._known.setdefault(directory.path, LiveRun(directory))
            except (OSError, ValueError, AttributeError):
                continue
            self._seen[directory.path] = written
            known = self._known.get(directory.path)
            if known and known.is_settled and known.metadata.get("published_at"):
                del self._known[directory.path]


def _may_be_unpublished(metadata: Mapping[str, Any], written: float) -> bool:
    is_ended = metadata.get("published_at") or time.time() - written > _STRANDED_SECONDS
    return metadata.get("status") == "running" or not is_ended


@router.get("/live")
def live(request: Request) -> Response:
    """Shows what is under way, as a part of the first page: once, or as events, one whenever it is something else."""
    return _followed(
        request, lambda: page(request, "live_runs.html", live=under_way(request), stranded=stranded(request))
    )


@router.get("/live/{run_id}")
def live_run(request: Request, run_id: str) -> Response:
    """Shows how far a run is, as a part of its page; nothing once it has ended and is published. Otherwise as above."""

    def part() -> Response:
        found: LiveRun | None = request.app.state.live.find(run_id)
        return page(request, "live_part.html", one=None if found and is_published(request, found) else found)

    return _followed(request, part)


def _followed(request: Request, part: Callable[[], Response]) -> Response:
    if EventSourceResponse.media_type not in request.headers.get("accept", ""):
        return part()
    return EventSourceResponse(_events(part, request.app.state.is_ending))


async def _events(part: Callable[[], Response], is_ending: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yields a part of a page whenever it is something else, until nobody listens or the server ends."""
    told = None
    while not is_ending():
        with suppress(NightjarError):  # the warehouse cannot be asked just now
            now = bytes((await run_in_threadpool(part)).body)
            if now != told:
                yield format_sse_event(data_str=now.decode())
            told = now
        await asyncio.sleep(_LOOK_SECONDS)


def under_way(request: Request) -> list[LiveRun]:
    """Returns the runs that are running, or have ended and will be published."""
    return [run for run in request.app.state.live.recent() if not is_published(request, run)]


def stranded(request: Request) -> list[LiveRun]:
    """Returns the runs that have crashed or ended and are not in the warehouse."""
    found = request.app.state.live.stranded()[:_MOST_STRANDED]
    return [run for run in found if not is_published(request, run)]


def is_published(request: Request, run: LiveRun) -> bool:
    """Says whether a run has ended, and the warehouse has it as it ended."""
    if run.metadata.get("status") == "running":
        return False
    warehouse: Warehouse = request.app.state.warehouse
    try:
        asked = {"run_id": run.run_id, "finished_at": str(run.metadata.get("finished_at"))}
        return bool(warehouse.query(_PUBLISHED, asked).rows)
    except MissingWarehouseError:
        return False
