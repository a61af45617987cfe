"""Nightjar's folder in the home of the user: what commands of different folders share."""

from __future__ import annotations

import os
from pathlib import Path

from nightjar.errors import ConfigError

VIEW_URL = "NIGHTJAR_VIEW_URL"
"""The variable that says where the web view is, for links to it."""


def home() -> Path:
    """Returns ``~/.nightjar``, or ``NIGHTJAR_HOME``; makes it.

    Raises:
        ConfigError: it cannot be made.
    """
    folder = Path(os.environ.get("NIGHTJAR_HOME", "~/.nightjar")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot make {str(folder)!r}: {error.strerror}. Set NIGHTJAR_HOME.") from error
    return folder
