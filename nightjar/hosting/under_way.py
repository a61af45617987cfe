"""The flow runs of a server that are under way, and the processes that run them."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import psutil

from nightjar.hosting.api import PrefectApi
from nightjar.hosting.naming import FLOWS

_STATES = ("PENDING", "RUNNING", "CANCELLING")
_MOST = 200
_CLOCK_SECONDS = 60.0


@dataclass(frozen=True)
class FlowRunUnderWay:
    """A flow run that has not ended as far as its server knows.

    Attributes:
        id, name: its own.
        state: ``PENDING``, ``RUNNING`` or ``CANCELLING``.
        since: from when on.
        work_pool: whose worker started it; None for a run from the command line.
        host, pid: its process; host None where only the worker has said which, both None where nobody has.
    """

    id: str
    name: str
    state: str
    since: datetime
    work_pool: str | None
    host: str | None
    pid: int | None

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Returns it from what the server says."""
        host, _, pid = (record["infrastructure_pid"] or "").rpartition(":")
        return cls(
            id=record["id"],
            name=record["name"],
            state=record["state_type"],
            since=datetime.fromisoformat(record["state"]["timestamp"]),
            work_pool=record["work_pool_name"],
            host=host or None,
            pid=int(pid) if pid.isdecimal() else None,
        )

    @property
    def age_seconds(self) -> float:
        """For how long it has been in its state."""
        return (datetime.now(UTC) - self.since).total_seconds()

    @property
    def is_elsewhere(self) -> bool:
        """Says whether it runs on another machine."""
        return self.host is not None and self.host != socket.gethostname()

    def process(self) -> psutil.Process | None:
        """Returns the process on this machine that runs it; None where it is gone."""
        if self.pid is None:
            return None
        try:
            process = psutil.Process(self.pid)
            is_another = process.create_time() > self.since.timestamp() + _CLOCK_SECONDS
            return None if is_another or process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None


def runs_under_way(api: PrefectApi, work_pool: str | None = None) -> list[FlowRunUnderWay]:
    """Returns the runs of Nightjar's flows that are under way, those first that have been for long.

    Args:
        api: the server.
        work_pool: None for all, those from the command line too.
    """
    chosen: dict[str, Any] = {
        "flows": {"name": {"any_": list(FLOWS)}},
        "flow_runs": {"state": {"type": {"any_": list(_STATES)}}},
        "limit": _MOST,
    }
    if work_pool is not None:
        chosen["work_pools"] = {"name": {"any_": [work_pool]}}
    found = [FlowRunUnderWay.of(record) for record in api.post("/flow_runs/filter", chosen) or ()]
    return sorted(found, key=lambda run: run.since)


def is_watched(process: psutil.Process) -> bool:
    """Says whether a worker of Prefect started a process, and ends it when its run is cancelled."""
    try:
        parent = process.parent()
        words = parent.cmdline() if parent else []
    except psutil.Error:
        return False
    return "worker" in words and any(word.endswith("prefect") for word in words)


def stop_process(process: psutil.Process) -> None:
    """Lets the run of a process stop, add up what it has and publish it."""
    try:
        process.send_signal(signal.SIGTERM)
    except psutil.NoSuchProcess:
        return
