"""``RunMetadata``: what ``metadata.json`` says of a run: what it is, how it stands, and what it came to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self, TypeAlias

from nightjar.errors import BudgetSpentError, RunCancelledError, RunTimedOutError, error_text
from nightjar.runs.summary import Summary
from nightjar.secrecy import hide

Status: TypeAlias = Literal["running", "completed", "incomplete", "failed", "cancelled", "timed_out", "crashed"]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class RunMetadata:
    """What a run is and how it stands; docs/run-directory.md has the file.

    Attributes:
        run_id: its id.
        status: ``completed``: all that is tolerated to be missing, or less, is missing; ``incomplete``: more;
            ``failed``: an error stopped it; ``cancelled``: somebody did; ``timed_out``: its time was over;
            ``crashed``: its process was gone before it had ended.
        env_id, env_args, extra_env_kwargs, env_version: its environment; the version is None where that is no package.
        model, base_url: its endpoint, the URLs of replicas with commas between them; the URL is None where the client
            has none, the model where an import names none.
        api_client_type: the endpoint's protocol; None where it is not known.
        num_examples: how many examples it takes.
        rollouts_per_example: rollouts of each.
        rollouts: how many that makes.
        sampling_args: as the endpoint takes them.
        dataset_fingerprint: identifies the content of its examples, and their order; None where not all are known.
        pass_threshold: the reward from which on a rollout is correct.
        state_columns: keys of the state that results keep besides their own.
        tags, suite, name: what it can be found by.
        version_info: versions and commits of Nightjar and the environment.
        flow_run_id: of the Prefect flow run; None in direct mode.
        rescored_from: id of the run whose rollouts it scores anew; None where it asked a model itself.
        started_at: when it was started first; None where another program did not say.
        finished_at: when it ended last; None while it is running.
        time_ms: for how long it ran, resumes added; None where another program did not say.
        original: of an imported run, the other program's own account; None for Nightjar's.
        requests: of the last session: how many were ``sent``, ``refused`` because they were too many, and made
            ``again``; ``pace``: when how many were let in flight, and sent a second, see ``clients.pace``.
        error: what stopped it before its end, with the name of its class; None where it came to its end.
        digests: of the files that the aggregates are of, see ``RunDirectory.digests``; None while it is running.
        summary: its aggregates; None while it is running.
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
    state_columns: Sequence[str] = ()
    tags: Sequence[str] = ()
    suite: str | None = None
    name: str | None = None
    version_info: Mapping[str, str | None]
    flow_run_id: str | None = None
    rescored_from: str | None = None
    started_at: datetime | None = field(default_factory=_now)
    finished_at: datetime | None = None
    time_ms: int | None = 0
    original: Mapping[str, Any] | None = None
    requests: Mapping[str, Any] | None = None
    error: str | None = None
    digests: Mapping[str, str] | None = None
    summary: Summary | None = None

    def continued(self, before: Mapping[str, Any], lost_ms: int = 0) -> Self:
        """Returns the metadata of a run that was started before, under what may be another spelling of its name.

        Args:
            before: what ``metadata.json`` says.
            lost_ms: how long its last session took that could not say so, because it was killed.
        """
        started = before.get("started_at")
        return replace(
            self,
            env_id=before.get("env_id") or self.env_id,
            started_at=datetime.fromisoformat(started) if started else self.started_at,
            time_ms=(before.get("time_ms") or 0) + lost_ms,
        )

    def as_it_was(self, before: Mapping[str, Any]) -> Self:
        """Returns the metadata of a run to which its last session has added nothing, with what was said before."""
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

        Args:
            summary: what is there.
            error: what stopped the run before its end; None where it came to its end.
            tolerated_failures: the part of the rollouts that may be missing in a complete run.
            ran_ms: how long the session took.
            digests: of its files; None of a run in memory.
            requests: those of this session.
        """
        return replace(
            self,
            status=final_status(summary, error, tolerated_failures),
            finished_at=_now(),
            time_ms=(self.time_ms or 0) + ran_ms,
            error=None if error is None else hide(f"{type(error).__name__}: {error_text(error)}"),
            digests=digests,
            requests=requests,
            summary=summary,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the content of ``metadata.json``."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in {"original", "summary"}}
        started = self.started_at
        return {
            **own,
            "date": started and started.date().isoformat(),
            "time": started and started.time().isoformat(timespec="seconds"),
            "started_at": _written(self.started_at),
            "finished_at": _written(self.finished_at),
            **(self.summary.metadata() if self.summary else {}),
            **({"original": self.original} if self.original else {}),
        }


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def final_status(summary: Summary, error: BaseException | None = None, tolerated_failures: float = 0.0) -> Status:
    """Returns how a run that has ended stands; arguments as for ``RunMetadata.ended``."""
    if isinstance(error, asyncio.CancelledError | RunCancelledError):
        return "cancelled"
    if isinstance(error, RunTimedOutError):
        return "timed_out"
    if error is not None and not isinstance(error, BudgetSpentError):
        return "failed"
    missing = summary.rollouts - summary.scored
    return "completed" if missing <= tolerated_failures * summary.rollouts else "incomplete"
