"""Evaluations as a Prefect server knows them: found by what somebody calls one, how they stand, why they failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from nightjar.config import RunConfig
from nightjar.errors import ConfigError
from nightjar.evaluation.failures import FailureClass, class_in, failure_class
from nightjar.hosting.api import PrefectApi
from nightjar.runs import new_run_id

_FLOW = "evaluate"
_PAGE = 200
_MOST = 2_000
_SHOWN = 5
_SOON = timedelta(minutes=1)
_ENDED = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
_STATES = {
    "SCHEDULED": "PENDING",
    "PENDING": "PENDING",
    "PAUSED": "PENDING",
    "RUNNING": "RUNNING",
    "COMPLETED": "COMPLETED",
    "FAILED": "FAILED",
    "CRASHED": "FAILED",
    "CANCELLING": "CANCELLED",
    "CANCELLED": "CANCELLED",
}
"""Types of Prefect's states, and what is shown of them; TIMEOUT is a Failed one that is called TimedOut."""


@dataclass(frozen=True)
class HostedRun:
    """A flow run of an evaluation.

    Attributes:
        id, name: its own.
        run_id: of its results.
        state: ``PENDING``, ``RUNNING``, ``COMPLETED``, ``FAILED``, ``TIMEOUT`` or ``CANCELLED``.
        is_ended: whether nothing comes any more, unless somebody retries it.
        message: what its state says; empty where it says nothing.
        failure: the class of what it failed with; None where it did not fail.
        since: from when on it is in its state.
        created_at: when it was asked for; of a schedule, when it was due.
        is_hosted: whether it is of a deployment; the others are from a command line.
        parameters: what was asked for.
        labels: what it was labelled with.
    """

    id: str
    name: str
    run_id: str
    state: str
    is_ended: bool
    message: str
    failure: FailureClass | None
    since: datetime
    created_at: datetime
    is_hosted: bool
    parameters: Mapping[str, Any]
    labels: Mapping[str, Any]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Returns it from what the server says."""
        told = record["state"] or {"type": "PENDING", "name": "Pending", "timestamp": record["created"]}
        state = "TIMEOUT" if told["name"] == "TimedOut" else _STATES[told["type"]]
        return cls(
            id=record["id"],
            name=record["name"],
            run_id=record["parameters"].get("part") or new_run_id(UUID(record["id"])),
            state=state,
            is_ended=told["type"] in _ENDED,
            message=told.get("message") or "",
            failure=_failure(told["type"], state, told.get("message") or ""),
            since=datetime.fromisoformat(told["timestamp"]),
            created_at=datetime.fromisoformat(record["expected_start_time"] or record["created"]),
            is_hosted=record["deployment_id"] is not None,
            parameters=record["parameters"],
            labels=record["labels"] or {},
        )

    def asked(self, field: str) -> Any:
        """Returns what was asked for as a field of ``RunConfig``; its default where nothing was, or None."""
        value, info = self.parameters.get(field), RunConfig.model_fields[field]
        is_said = value is not None or info.is_required()
        return value if is_said else info.get_default(call_default_factory=True)

    def is_called(self, text: str) -> bool:
        """Says whether somebody means it: its id, or that of its results, or how one begins, or its name."""
        plain = text.lower().replace("-", "")
        return text == self.name or (bool(plain) and (self._hex.startswith(plain) or self.run_id.startswith(plain)))

    @property
    def _hex(self) -> str:
        return UUID(self.id).hex


def _failure(kind: str, state: str, message: str) -> FailureClass | None:
    if state == "TIMEOUT":
        return FailureClass.TIMEOUT
    if state != "FAILED":
        return None
    known = class_in(message) or failure_class(message)
    return FailureClass.INFRASTRUCTURE if kind == "CRASHED" and known is FailureClass.ENVIRONMENT else known


def hosted_runs(api: PrefectApi) -> Iterator[HostedRun]:
    """Yields the evaluations that a server knows, the newest first; none that a schedule makes later than now.

    Raises:
        ServiceError: the server does not answer, or refuses.
    """
    due = (datetime.now(UTC) + _SOON).isoformat()
    for offset in range(0, _MOST, _PAGE):
        chosen = {
            "flows": {"name": {"any_": [_FLOW]}},
            "flow_runs": {"expected_start_time": {"before_": due}},
            "sort": "EXPECTED_START_TIME_DESC",
            "offset": offset,
            "limit": _PAGE,
        }
        page = api.post("/flow_runs/filter", chosen) or []
        yield from map(HostedRun.of, page)
        if len(page) < _PAGE:
            return


def find_hosted_run(api: PrefectApi, asked: str) -> HostedRun | None:
    """Returns the evaluation that somebody means; None where the server knows none.

    Args:
        api: the server.
        asked: the id of a flow run, or of a run, or how one begins; or the name of a flow run.

    Raises:
        ConfigError: there are several.
        ServiceError: the server does not answer, or refuses.
    """
    try:
        record = api.get(f"/flow_runs/{UUID(asked)}")
    except ValueError:
        pass
    else:
        return HostedRun.of(record) if record else None
    found = [run for run in hosted_runs(api) if run.is_called(asked)]
    match [run for run in found if run.run_id == asked] or found:
        case []:
            return None
        case [run]:
            return run
        case several:
            ids = ", ".join(run.run_id for run in several[:_SHOWN])
            raise ConfigError(f"{len(several)} runs are called, or begin with, {asked!r}: {ids}. Give more of an id")


def read_hosted_run(api: PrefectApi, flow_run_id: str) -> HostedRun | None:
    """Returns an evaluation as it is now; None where it was removed; errors as for ``hosted_runs``."""
    record = api.get(f"/flow_runs/{flow_run_id}")
    return HostedRun.of(record) if record else None
