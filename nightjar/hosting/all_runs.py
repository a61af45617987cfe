"""Runs wherever they are: on a Prefect server, on disk here, in the warehouse; each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from nightjar.evaluation.stored_runs import StoredRun
from nightjar.hosting.hosted_runs import HostedRun
from nightjar.runs import Status

STATUSES = tuple(sorted({"pending", "timeout", *get_args(Status)}))
"""What runs can be listed by: states of those on a server, and statuses of those that are stored."""
_STATES = {"timed_out": "TIMEOUT"}


@dataclass(frozen=True)
class ListedRun:
    """A run as a server knows it, or as it is stored, or both.

    Attributes:
        hosted: on the server; None where that does not know it.
        stored: on disk here or in the warehouse; None where it is not there, yet or at all.
    """

    hosted: HostedRun | None
    stored: StoredRun | None

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.stored.run_id if self.stored else self._hosted.run_id

    @property
    def started_at(self) -> str:
        """When it was started, or is to be."""
        stored = self.told("started_at")
        return str(stored) if stored else self.hosted.created_at.isoformat() if self.hosted else ""

    @property
    def kind(self) -> str:
        """``HOSTED`` where a worker does it, as far as the server says, else ``LOCAL``."""
        return "HOSTED" if self.hosted and self.hosted.is_hosted else "LOCAL"

    @property
    def state(self) -> str:
        """What the server says; of others the status: INCOMPLETE and CRASHED too."""
        if self.hosted:
            return self.hosted.state
        status = str(self.told("status"))
        return _STATES.get(status, status.upper())

    def told(self, field: str) -> Any:
        """Returns what ``metadata.json`` says; else, of what was asked for, what the server does; else None."""
        if self.stored is not None:
            return self.stored.metadata.get(field)
        return self._hosted.asked(field) if field in _ASKED else None

    def record(self) -> dict[str, Any]:
        """Returns what ``--json`` prints of it."""
        return {
            "run_id": self.run_id,
            "type": self.kind,
            "state": self.state,
            **{field: self.told(field) for field in _FIELDS},
            "started_at": self.started_at or None,
            "cost": self.stored.cost if self.stored else None,
            "path": str(self.stored.path) if self.stored and self.stored.path else None,
            "flow_run_id": self.hosted.id if self.hosted else self.told("flow_run_id"),
            "flow_run_name": self.hosted.name if self.hosted else None,
        }

    @property
    def _hosted(self) -> HostedRun:
        assert self.hosted is not None, "a run is on the server, or stored"
        return self.hosted


_ASKED = frozenset({"env_id", "model", "num_examples", "rollouts_per_example", "tags", "suite"})
_FIELDS = ("status", "env_id", "model", "num_examples", "rollouts_per_example", "avg_reward", "stderr", "scored",
           "failed", "rollouts", "time_ms", "tags", "suite", "rescored_from")  # fmt: skip


def joined(hosted: Iterable[HostedRun], stored: Iterable[StoredRun]) -> Iterator[ListedRun]:
    """Yields runs of a server and runs that are stored, each once."""
    left = {run.run_id: run for run in stored}
    for run in hosted:
        yield ListedRun(run, left.pop(run.run_id, None))
    for other in left.values():
        yield ListedRun(None, other)
