"""``LastLines``: what a process said last on stderr, for the message that says why it failed."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TextIO

_LINES = 20
_LINE_CHARACTERS = 2000
_READ_SECONDS = 0.2


class LastLines:
    """Reads what a process writes to stderr, so that it never blocks, and keeps the last lines.

    Example:
        >>> lines = LastLines()
        >>> with lines.open() as stderr:
        ...     print("out of paper", file=stderr)
        >>> lines.quoted()
        '; it wrote to stderr: out of paper'
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader: threading.Thread | None = None

    def open(self) -> TextIO:
        """Returns a file for a process to write to; what an earlier one wrote is forgotten."""
        read_end, write_end = os.pipe()
        self._lines = deque(maxlen=_LINES)
        self._reader = threading.Thread(target=_read_lines, args=(read_end, self._lines), daemon=True)
        self._reader.start()
        return os.fdopen(write_end, "w")

    def quoted(self) -> str:
        """Returns the last lines as the end of a sentence; nothing where there are none."""
        if self._reader is not None:
            self._reader.join(_READ_SECONDS)
        text = "\n".join(self._lines).strip()
        return f"; it wrote to stderr: {text}" if text else ""


def _read_lines(read_end: int, lines: deque[str]) -> None:
    with os.fdopen(read_end, errors="replace") as stream:
        while line := stream.readline(_LINE_CHARACTERS):
            lines.append(line.rstrip())
