"""Nightjar's own log in the log of the flow run."""

from __future__ import annotations

import logging

from prefect.logging.handlers import APILogHandler


def nightjar_log_in_run_log() -> None:
    """Sends what Nightjar logs, from INFO on, to Prefect's API too; once a process."""
    logger = logging.getLogger("nightjar")
    if not any(isinstance(handler, APILogHandler) for handler in logger.handlers):
        logger.addHandler(APILogHandler(logging.INFO))
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
