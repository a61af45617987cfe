"""How long Prefect's worker may still undo the retry of a run that it started."""

from __future__ import annotations

from datetime import UTC, datetime

WORKER_SECONDS = 30.0
"""Prefect's worker records the end of a run that it started. On a busy machine, this happens up to half a minute after
the end of the process, and would undo a retry that is requested earlier.
"""
CANCEL_SECONDS = 60.0
"""When Prefect's worker starts a run, it receives the cancel requests of the last minute again. On a busy machine, they
arrive after the process has started. Then they cancel a run that was retried within this minute.
"""


def seconds_before_retry(state_type: str, ended_at: datetime, work_pool: str | None) -> float:
    """Returns how long to wait before a retry: 0, unless a worker's run has just crashed or was just cancelled.

    ``state_type`` is the type of the run's state in Prefect, such as ``CRASHED``. If ``work_pool`` is None, the run was
    not started by a worker.
    """
    seconds = {"CRASHED": WORKER_SECONDS, "CANCELLED": CANCEL_SECONDS}.get(state_type, 0.0) if work_pool else 0.0
    age_seconds = (datetime.now(UTC) - ended_at).total_seconds()
    return max(0.0, min(seconds, seconds - age_seconds))  # the server's clock may be ahead
