"""A run whose process is gone: another adds up what it finished."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from nightjar.runs.adding_up import add_up
from nightjar.runs.directory import RunDirectory
from nightjar.runs.metadata import Status

logger = logging.getLogger(__name__)

_STATUS: Status = "crashed"


def end_crashed(directory: RunDirectory) -> None:
    """Puts the results of a run in order, adds them up and says ``crashed``, where the last thing said is ``running``.

    It ended, as far as anybody knows, when a file was written last.

    Args:
        directory: locked by this process, so that its own is gone.

    Raises:
        RunDirectoryError: a file is damaged, or cannot be written.
    """
    metadata = directory.read_metadata()
    if metadata.get("status") != "running":
        return
    began, ended = directory.last_session()
    summary = add_up(directory, metadata)
    session = {
        "status": _STATUS,
        "finished_at": datetime.fromtimestamp(ended, UTC).isoformat(timespec="milliseconds"),
        "time_ms": (metadata.get("time_ms") or 0) + round(1000 * (ended - began)),
    }
    directory.write_metadata(metadata | session | {"digests": directory.digests()} | summary.metadata())
    logger.warning(
        "The process of run %s was gone before it had ended: %d of %d rollouts are scored, its status is %s",
        directory.run_id, summary.scored, summary.rollouts, _STATUS,
    )  # fmt: skip
