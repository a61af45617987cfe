"""``RunMetadata``: the content of ``metadata.json``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Self, TypeAlias

from nightjar.core.secrecy import error_text
from nightjar.engine.runs.summary import Summary
from nightjar.errors import BudgetSpentError, RunCancelledError, RunTimedOutError

Status: TypeAlias = Literal["running", "completed", "incomplete", "failed", "cancelled", "timed_out", "crashed"]


@dataclass(frozen=True, kw_only=True)
class RunMetadata:
    """The settings, status and summary of a run. docs/reference/run-directory.md describes the file.

    ``requests`` counts the requests of the last session: ``refused`` were rejected as too many; ``again`` are retries.
    """

    run_id: str
    status: Status = "running"
    env_id: str
    env_args: Mapping[str, Any]
    extra_env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    env_version: str | None
    model: str | None
    base_url: str | None
    api_client_type: str | None = None
    num_examples: int
    rollouts_per_example: int
    rollouts: int = 0
    sampling_args: Mapping[str, Any]
    dataset_fingerprint: str | None = None
    pass_threshold: float
    reward_weights: Mapping[str, Any] = field(default_factory=dict)
    state_columns: Sequence[str] = ()
    tags: Sequence[str] = ()
    suite: str | None = None
    name: str | None = None
    version_info: Mapping[str, str | None]
    flow_run_id: str | None = None
    rescored_from: str | None = None
    started_at: datetime | None = field(default_factory=partial(datetime.now, UTC))
    finished_at: datetime | None = None
    time_ms: int | None = 0
    original: Mapping[str, Any] | None = None
    requests: Mapping[str, Any] | None = None
    error: str | None = None
    digests: Mapping[str, str] | None = None
    summary: Summary | None = None

    def continued(self, before: Mapping[str, Any], lost_ms: int = 0) -> Self:
        """Returns the metadata of a resumed run. ``lost_ms`` is the unrecorded duration of a killed session."""
        started = before.get("started_at")
        return replace(
            self,
            env_id=before.get("env_id") or self.env_id,
            started_at=datetime.fromisoformat(started) if started else self.started_at,
            time_ms=(before.get("time_ms") or 0) + lost_ms,
        )

    def unchanged(self, before: Mapping[str, Any]) -> Self:
        """Returns the metadata of a run whose last session added no rollouts.

        End, duration and requests stay unchanged.
        """
        finished = before.get("finished_at")
        return replace(
            self,
            finished_at=datetime.fromisoformat(finished) if finished else self.finished_at,
            time_ms=before.get("time_ms") or self.time_ms,
            requests=before.get("requests"),
        )

    def ended(
        self,
        summary: Summary,
        error: BaseException | None,
        tolerated_failures: float,
        ran_ms: int,
        digests: Mapping[str, str] | None,
        requests: Mapping[str, Any] | None = None,
    ) -> Self:
        """Returns the metadata at the end of a session.

        ``tolerated_failures`` is the share of rollouts that may be missing.
        """
        return replace(
            self,
            status=final_status(summary, error, tolerated_failures),
            finished_at=datetime.now(UTC),
            time_ms=(self.time_ms or 0) + ran_ms,
            error=None if error is None else f"{type(error).__name__}: {error_text(error)}",
            digests=digests,
            requests=requests,
            summary=summary,
        )

    def to_json(self) -> dict[str, Any]:
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in {"original", "summary"}}
        started = self.started_at
        return {
            **own,
            "date": started and started.date().isoformat(),
            "time": started and started.time().isoformat(timespec="seconds"),
            "started_at": started and started.isoformat(timespec="milliseconds"),
            "finished_at": self.finished_at and self.finished_at.isoformat(timespec="milliseconds"),
            **(self.summary.metadata() if self.summary else {}),
            **({"original": self.original} if self.original else {}),
        }


def final_status(summary: Summary, error: BaseException | None = None, tolerated_failures: float = 0.0) -> Status:
    if isinstance(error, asyncio.CancelledError | RunCancelledError):
        return "cancelled"
    if isinstance(error, RunTimedOutError):
        return "timed_out"
    if error is not None and not isinstance(error, BudgetSpentError):
        return "failed"
    missing = summary.rollouts - summary.scored - summary.filtered
    return "completed" if missing <= tolerated_failures * summary.rollouts else "incomplete"
