"""Flow runs in progress on a server, their processes, and the end and results of runs whose process is gone."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psutil

from nightjar.core.process_ids import process_host
from nightjar.core.worker_delays import WORKER_SECONDS
from nightjar.engine.runs import Whereabouts
from nightjar.hosting.processes import spawn
from nightjar.hosting.server import PrefectApi

_STATES = ("PENDING", "RUNNING", "CANCELLING")
_CLOCK_SECONDS = 60.0


@dataclass(frozen=True)
class ActiveFlowRun:
    """A flow run that has not ended, as far as its server knows. ``since`` is the time when it entered its state.

    For a run from the command line, ``work_pool`` is None. If only the worker reported the process, ``host`` is None.
    If nobody reported the process, ``host`` and ``pid`` are None.
    """

    id: str
    name: str
    state: str
    since: datetime
    work_pool: str | None
    host: str | None
    pid: int | None
    where: Whereabouts | None

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        host, _, pid = (record["infrastructure_pid"] or "").rpartition(":")
        return cls(
            id=record["id"],
            name=record["name"],
            state=record["state_type"],
            since=datetime.fromisoformat(record["state"]["timestamp"]),
            work_pool=record["work_pool_name"],
            host=host or None,
            pid=int(pid) if pid.isdecimal() else None,
            where=Whereabouts.from_labels(record["labels"] or {}),
        )

    @property
    def age_seconds(self) -> float:
        return (datetime.now(UTC) - self.since).total_seconds()

    @property
    def is_elsewhere(self) -> bool:
        return self.host is not None and self.host != process_host()

    def process(self) -> psutil.Process | None:
        """Returns the run's process on this machine, or None if the process is gone."""
        if self.pid is None:
            return None
        try:
            process = psutil.Process(self.pid)
            is_another = process.create_time() > self.since.timestamp() + _CLOCK_SECONDS
            return None if is_another or process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None

    def stop(self) -> int | None:
        """Sends SIGTERM: the run stops, aggregates its finished rollouts and publishes them. Returns the process id.

        Returns None without a signal if the process is gone, or if a worker started it and ends it.
        """
        process = self.process()
        if process is None or _is_of_worker(process):
            return None
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
        return int(process.pid)


def active_flow_runs(api: PrefectApi, work_pool: str | None = None) -> list[ActiveFlowRun]:
    """Returns the runs of Nightjar's flows in progress, the longest-running first."""
    request = {"work_pools": {"name": {"any_": [work_pool]}}} if work_pool is not None else {}
    found = map(ActiveFlowRun.of, api.flow_runs(states=_STATES, **request))
    return sorted(found, key=lambda run: run.since)


def _is_of_worker(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        words = parent.cmdline() if parent else []
    except psutil.Error:
        return False
    return "worker" in words and any(word.endswith("prefect") for word in words)


def message_keepers() -> Iterator[psutil.Process]:
    """Yields the processes that keep the messages of cancelled runs."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "nightjar.flows.cancelling" in process.cmdline():
                yield process


def end_keepers(api_url: str) -> None:
    """Ends the processes that keep the messages of cancelled runs, when their server ends."""
    for process in message_keepers():
        with suppress(psutil.Error):
            if process.environ().get("PREFECT_API_URL") == api_url:
                process.kill()


_START_SECONDS = 90.0
_RECENT_RUNS = 20
WITHOUT_HEARTBEATS = "Its heartbeats stopped."
"""How the message of a run begins that the automation marked as Crashed."""


class LostRuns:
    """Ends runs on this machine that have no process, or that no worker would cancel. Revives runs with a process.

    For ``settled_seconds`` after a change of state, the process may still be unknown.
    """

    def __init__(self, api: PrefectApi, work_pool: str, settled_seconds: float) -> None:
        self._api = api
        self._work_pool = work_pool
        self._settled_seconds = settled_seconds
        self._stopped: set[str] = set()
        self._gone_since: dict[str, float] = {}

    def settle(self) -> Iterator[str]:
        """Marks runs without a process as Completed, Crashed or Cancelled, and stops runs to be cancelled.

        Yields a message for each of these runs.
        A run that was marked as Crashed because its heartbeats stopped is Running again if its process is alive.
        """
        yield from self._revive()
        active = active_flow_runs(self._api)
        ids = {run.id for run in active}
        self._gone_since = {run_id: since for run_id, since in self._gone_since.items() if run_id in ids}
        for run in active:
            patience = _START_SECONDS if run.state == "PENDING" else self._settled_seconds
            if self._is_ours(run) and run.age_seconds > patience and run.process() is None:
                since = self._gone_since.setdefault(run.id, time.monotonic())
                if run.pid is None or run.work_pool is None or time.monotonic() - since > WORKER_SECONDS:
                    yield from self._mark(run)
            elif run.state == "CANCELLING" and self._is_ours(run) and run.id not in self._stopped:
                pid = run.stop()
                if pid is not None:
                    self._stopped.add(run.id)
                    yield f"Run {run.name!r} ({run.id}) is being cancelled: SIGTERM was sent to its process {pid}."

    def _revive(self) -> Iterator[str]:
        for record in self._api.flow_runs(states=("CRASHED",), sort="END_TIME_DESC", limit=_RECENT_RUNS):
            run = ActiveFlowRun.of(record)
            if not str(record["state"]["message"]).startswith(WITHOUT_HEARTBEATS) or run.is_elsewhere:
                continue
            if (process := run.process()) is None:
                continue
            message = f"Its process {process.pid} is alive, although its heartbeats stopped."
            if self._api.set_state(run.id, "RUNNING", message, is_forced=True):
                yield f"Run {run.name!r} ({run.id}) is Running again: its process is alive."

    def _is_ours(self, run: ActiveFlowRun) -> bool:
        return not run.is_elsewhere and (run.host is not None or run.work_pool == self._work_pool)

    def _mark(self, run: ActiveFlowRun) -> Iterator[str]:
        if run.where is not None and run.where.is_complete():
            state, why = "COMPLETED", "it ended while the server did not answer"
            message = "The run is complete. The server did not answer when it ended."
        else:
            state, why = "CANCELLED" if run.state == "CANCELLING" else "CRASHED", "its process is gone"
            process = f"Process {run.pid}, which ran it," if run.pid else "The process that was to run it"
            rest = "Retry" if run.work_pool else "The same command with --resume"
            message = f"{process} is gone. Finished rollouts are kept; {rest} resumes it."
        if self._api.set_state(run.id, state, message):
            yield f"Run {run.name!r} ({run.id}) is {state.capitalize()}: {why}."


_WAIT_SECONDS = 30.0
_SECRETS = "/block_types/slug/nightjar-environment-secrets/block_documents/name"


class LostResults:
    """Publishes the results of runs whose process is gone, each run in a separate process."""

    def __init__(self, api: PrefectApi, log: Path) -> None:
        self._api = api
        self._log = log
        self._seen: set[str] = set()
        self._publishing: subprocess.Popen[bytes] | None = None

    def publish(self) -> Iterator[str]:
        if self._publishing is not None and self._publishing.poll() is None:
            return
        for run in self._api.flow_runs(states=("CRASHED", "CANCELLED"), sort="END_TIME_DESC"):
            is_new = run["state_id"] not in self._seen
            self._seen.add(run["state_id"])
            where = Whereabouts.from_labels(run["labels"])
            if is_new and where is not None and where.is_unpublished():
                self._publishing = self._start(where, run["parameters"].get("secrets"))
                yield f"The finished rollouts of run {run['name']!r} ({run['id']}) are being published."
                return

    def wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            if self._publishing is not None:
                self._publishing.wait(_WAIT_SECONDS)

    def _start(self, where: Whereabouts, secrets: str | None) -> subprocess.Popen[bytes]:
        warehouse = ["--warehouse", where.warehouse] if where.warehouse else []
        block = self._api.get(f"{_SECRETS}/{secrets}?include_secrets=true") if secrets else None
        variables = block["data"]["values"] if block else {}
        return spawn(self._log, ("nightjar", "publish", where.run_dir, *warehouse), variables, where.folder)
