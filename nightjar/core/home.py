"""``~/.nightjar``: files that commands in different folders share."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from nightjar.errors import ConfigError

VIEW_URL = "NIGHTJAR_VIEW_URL"
VIEW_PORT = 4280
"""The port of a web view, unless it is taken."""
WAREHOUSE_OF_VIEW = "/warehouse.json"
"""The path at which a web view names its warehouse."""


def home() -> Path:
    """Returns ``NIGHTJAR_HOME``, by default ``~/.nightjar``. Creates the folder, or raises ``ConfigError``."""
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot create {str(folder)!r}: {error.strerror}. Set NIGHTJAR_HOME.") from error
    return folder


def config_path() -> Path:
    return _folder() / "config.toml"


def read_config() -> dict[str, Any]:
    """Returns the user's defaults, or an empty dict without a file. Raises ``ConfigError`` if the file is damaged."""
    path = config_path()
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. Fix it, or move it away") from None


def _folder() -> Path:
    return Path(os.environ.get("NIGHTJAR_HOME", "~/.nightjar")).expanduser()
