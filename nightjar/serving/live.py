"""Runs that are still being written, or were and are on disk alone.

Whoever looks, the files are looked at once a second at most, for all together, and only what was added is read. The
process of the run has no part in it. A page is told by server-sent events while it is seen: hidden ones would hold
the six connections that a browser has to a server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from fastapi.sse import EventSourceResponse, format_sse_event

from nightjar.errors import MissingWarehouseError, NightjarError, RunDirectoryError
from nightjar.runs import run_directories
from nightjar.serving.live_run import LiveRun
from nightjar.serving.templating import page
from nightjar.warehouse import Warehouse

router = APIRouter()

_LOOK_SECONDS = 1.0
_SEARCH_SECONDS = 5.0
_STRANDED_SECONDS = 30 * 24 * 3600.0
_MOST_STRANDED = 20
_PUBLISHED = """
SELECT run_id
FROM segments.runs JOIN (SELECT unnest($run_ids) AS run_id, unnest($ended_at) AS ended_at) AS ended USING (run_id)
WHERE coalesce(finished_at >= TRY_CAST(ended_at AS TIMESTAMPTZ), true)
"""


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
    return _unpublished(request, request.app.state.live.recent())


def stranded(request: Request) -> list[LiveRun]:
    """Returns the runs that have crashed or ended and are not in the warehouse."""
    return _unpublished(request, request.app.state.live.stranded()[:_MOST_STRANDED])


def is_published(request: Request, run: LiveRun) -> bool:
    """Says whether a run has ended, and the warehouse has it as it ended."""
    return not _unpublished(request, [run])


def _unpublished(request: Request, runs: list[LiveRun]) -> list[LiveRun]:
    """Leaves out the runs that have ended and that the warehouse has as they ended; asks once for all."""
    ended = [run for run in runs if run.metadata.get("status") != "running"]
    if not ended:
        return runs
    warehouse: Warehouse = request.app.state.warehouse
    ended_at = [str(run.metadata.get("finished_at")) for run in ended]
    try:
        found = warehouse.query(_PUBLISHED, {"run_ids": [run.run_id for run in ended], "ended_at": ended_at})
    except MissingWarehouseError:
        return runs
    published = {run_id for (run_id,) in found.rows}
    return [run for run in runs if run not in ended or run.run_id not in published]
