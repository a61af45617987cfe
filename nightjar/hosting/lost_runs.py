"""Runs whose process is gone, or that nobody else would stop: they end in the state that they are in."""

from __future__ import annotations

from collections.abc import Iterator

from nightjar.hosting.api import PrefectApi
from nightjar.hosting.under_way import FlowRunUnderWay, is_watched, runs_under_way, stop_process

_START_SECONDS = 90.0
"""So long a worker may take to start a process."""


class LostRuns:
    """Finds such runs, each time it is asked.

    Args:
        api: the server.
        work_pool: the one that this machine serves.
        settled_seconds: so long after a new state the process that it is of may not be known yet.
    """

    def __init__(self, api: PrefectApi, work_pool: str, settled_seconds: float) -> None:
        self._api = api
        self._work_pool = work_pool
        self._settled_seconds = settled_seconds
        self._stopped: set[str] = set()

    def settle(self) -> Iterator[str]:
        """Marks runs without a process as Crashed, or Cancelled, and stops those that are to be; says what it did.

        Raises:
            ServiceError: the server does not answer.
        """
        for run in runs_under_way(self._api):
            if self._is_gone(run):
                yield from self._mark(run)
            elif run.state == "CANCELLING" and self._is_ours(run) and run.id not in self._stopped:
                yield from self._stop(run)

    def _is_ours(self, run: FlowRunUnderWay) -> bool:
        """Says whether a run is of this machine: its own process said so, or it is of its work pool."""
        return not run.is_elsewhere and (run.host is not None or run.work_pool == self._work_pool)

    def _is_gone(self, run: FlowRunUnderWay) -> bool:
        patience = _START_SECONDS if run.state == "PENDING" else self._settled_seconds
        return self._is_ours(run) and run.age_seconds > patience and run.process() is None

    def _mark(self, run: FlowRunUnderWay) -> Iterator[str]:
        state = "CANCELLED" if run.state == "CANCELLING" else "CRASHED"
        process = f"Process {run.pid}, which ran it," if run.pid else "The process that was to run it"
        rest = "Retry" if run.work_pool else "The same command with --resume"
        if self._api.set_state(run.id, state, f"{process} is gone. What it finished is kept; {rest} does the rest."):
            yield f"Run {run.name!r} ({run.id}) is {state.capitalize()}: its process is gone."

    def _stop(self, run: FlowRunUnderWay) -> Iterator[str]:
        """Stops a run that is to be cancelled, unless it has a worker, which does it."""
        process = run.process()
        if process is not None and not is_watched(process):
            self._stopped.add(run.id)
            stop_process(process)
            yield f"Run {run.name!r} ({run.id}) is to be cancelled: its process {process.pid} is told to stop."
