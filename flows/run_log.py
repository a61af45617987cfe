"""Nightjar's own log in the log of the flow run."""

from __future__ import annotations

import logging

from prefect.logging.handlers import APILogHandler, APILogWorker

from nightjar.secrecy import hidden_in_log
from tasks.away import is_away

_SEND_SECONDS = 60.0


def nightjar_log_in_run_log() -> None:
    """Sends what Nightjar logs, from INFO on, to Prefect's API too; once a process."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_is_news)
        logging.getLogger(name).addFilter(hidden_in_log)
    logger = logging.getLogger("nightjar")
    if not any(isinstance(handler, APILogHandler) for handler in logger.handlers):
        handler = APILogHandler(logging.INFO)
        handler.addFilter(hidden_in_log)
        logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)


async def send_run_log() -> None:
    """Sends what is still to be sent: who follows a run has all of its log when its state says that it has ended."""
    if not is_away():
        await APILogWorker.drain_all(timeout=_SEND_SECONDS, at_exit=False)  # type: ignore[misc]


def _is_news(record: logging.LogRecord) -> bool:
    """Leaves out how Prefect says that a task or flow has ended: its state shows it, and reasons are logged before."""
    return not record.getMessage().startswith("Finished in state ")
