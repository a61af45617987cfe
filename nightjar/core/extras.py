"""Modules of Nightjar's extras, which are imported when a feature first needs them."""

from __future__ import annotations

import importlib
from typing import Any

from nightjar.errors import ConfigError


def import_extra(module: str, extra: str, user: str) -> Any:
    """Imports a module of an extra. The ImportError names ``user`` and the command that installs the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{user} needs the package {error.name!r}, which is not installed: pip install 'nightjar-evals[{extra}]'",
            name=error.name,
        ) from error


def require_extra(module: str, extra: str, user: str) -> Any:
    """Imports a module of an extra for a command. Raises ``ConfigError`` with the text of ``import_extra``."""
    try:
        return import_extra(module, extra, user)
    except ImportError as error:
        raise ConfigError(str(error)) from error
