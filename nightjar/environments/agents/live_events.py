"""Events of a rollout in progress, which the view follows. docs/reference/run-directory.md describes the file."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

_MOST_TEXT = 20_000
logger = logging.getLogger(__name__)


class LiveEvents:
    """Appends events to a file of the run directory. Without a directory, or on a full disk, does nothing."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = folder and folder / "live" / f"{name}.jsonl"
        if self._path is not None:
            self._try(self._begin, self._path)

    def add(self, kind: str, text: str, exit_code: int | None = None, seconds: float | None = None) -> None:
        """Appends an event; long texts are cut to their end."""
        if self._path is not None:
            event = {
                "at": round(time.time(), 3),
                "kind": kind,
                "text": text[-_MOST_TEXT:],
                "exit_code": exit_code,
                "seconds": seconds,
            }
            self._try(self._append, self._path, event)

    def end(self) -> None:
        """Removes the file, and the folder with the last file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            with suppress(OSError):  # other rollouts are in progress
                self._path.parent.rmdir()

    @staticmethod
    def _begin(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")

    @staticmethod
    def _append(path: Path, event: dict[str, Any]) -> None:
        with path.open("ab") as file:
            file.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))

    def _try(self, write: Any, *arguments: Any) -> None:
        try:
            write(*arguments)
        except OSError as error:
            logger.debug("The rollout in progress cannot be followed: %s", error)
            self._path = None
