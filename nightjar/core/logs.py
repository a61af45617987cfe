"""Logging of ``nightjar.…``, and of ``verifiers.…`` for environments. Importing Nightjar configures no logging."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import orjson

from nightjar.core.secrecy import hidden_in_log
from nightjar.core.text import harmless

LOGGER_NAMES = ("nightjar", "verifiers")
DEFAULT_LEVEL = os.environ.get("VF_LOG_LEVEL") or "INFO"
"""``VF_LOG_LEVEL`` if it is set."""

_FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "name": record.name,
            "message": record.getMessage(),
            "module": record.module,
            "function": record.funcName,
            "line": record.lineno,
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(entry).decode()
        except TypeError:  # a text with half a surrogate pair
            return json.dumps(entry)


class _ForEyes(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record))


def setup_logging(
    level: str | int | None = DEFAULT_LEVEL,
    log_format: str | None = None,
    date_format: str | None = None,
    log_file: str | Path | None = None,
    console_logging: bool = True,
    file_logging: bool = False,
    json_logging: bool = False,
) -> None:
    """Configures logging, and replaces any earlier configuration.

    With ``level`` None, nothing is logged. ``file_logging`` needs ``log_file``. ``json_logging`` also formats other
    loggers' records.

    Example:
        >>> setup_logging("WARNING")
    """
    if file_logging and log_file is None:
        raise ValueError("log_file must be specified when file_logging is True")
    threshold = logging.CRITICAL + 1 if level is None else _threshold(level)
    plain = logging.Formatter(log_format or _FORMAT, date_format or _DATE_FORMAT)
    handlers: list[logging.Handler] = []
    if console_logging and level is not None:
        handlers.append(logging.StreamHandler(sys.stderr))
    if log_file is not None and file_logging and level is not None:
        handlers.append(logging.FileHandler(log_file, encoding="utf-8"))
    for handler in handlers:
        handler.addFilter(hidden_in_log)
        handler.setFormatter(JsonFormatter() if json_logging else plain)
    for name in LOGGER_NAMES:
        _replace_handlers(logging.getLogger(name), handlers or [logging.NullHandler()], threshold)
    if json_logging and level is not None:
        _log_json(logging.getLogger(), threshold)


def _replace_handlers(logger: logging.Logger, handlers: list[logging.Handler], threshold: int) -> None:
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    for handler in handlers:
        logger.addHandler(handler)
    logger.setLevel(threshold)
    logger.propagate = False


def _log_json(root: logging.Logger, threshold: int) -> None:
    for handler in list(root.handlers):
        if isinstance(handler.formatter, JsonFormatter):
            root.removeHandler(handler)
    root.addHandler(_stderr_handler(JsonFormatter()))
    root.setLevel(threshold)


def _threshold(level: str | int) -> int:
    levels = logging.getLevelNamesMapping()
    if isinstance(level, int):
        return level
    if level.upper() not in levels:
        raise ValueError(f"Unknown log level {level!r}. Choose one of: {', '.join(levels)}")
    return levels[level.upper()]


def log_to_stderr(verbose: bool = False) -> None:
    """Logs warnings to stderr; with ``verbose``, logs all messages. Other handlers get all messages in both cases."""
    level = logging.DEBUG if verbose else logging.WARNING
    handler = _stderr_handler(_ForEyes("%(levelname)s %(message)s"), level)
    logging.lastResort = _stderr_handler(_ForEyes("%(levelname)s %(name)s: %(message)s"), logging.WARNING)
    logger = logging.getLogger("nightjar")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current ``sys.stderr``. A live view replaces it, to show lines without damage to the view."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _stderr_handler(formatter: logging.Formatter, level: int = logging.NOTSET) -> logging.Handler:
    handler = _StderrHandler(sys.stderr)
    handler.setLevel(level)
    handler.addFilter(hidden_in_log)
    handler.setFormatter(formatter)
    return handler


@contextmanager
def log_level(level: str | int) -> Iterator[None]:
    """Sets the level during a block.

    Example:
        >>> with log_level("DEBUG"):
        ...     logging.getLogger("nightjar").level == logging.DEBUG
        True
    """
    before = {name: logging.getLogger(name).level for name in LOGGER_NAMES}
    for name in LOGGER_NAMES:
        logging.getLogger(name).setLevel(_threshold(level))
    try:
        yield
    finally:
        for name, was in before.items():
            logging.getLogger(name).setLevel(was)


def quiet_verifiers() -> AbstractContextManager[None]:
    """Drops messages below a warning during a block.

    Example:
        >>> with quiet_verifiers():
        ...     logging.getLogger("nightjar").isEnabledFor(logging.INFO)
        False
    """
    return log_level("WARNING")
