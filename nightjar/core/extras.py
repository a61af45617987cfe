"""Modules of Nightjar's extras, which are imported when a feature first needs them."""

from __future__ import annotations

import importlib
from typing import Any

from nightjar.errors import ConfigError

_EXTRAS = {"anthropic": "anthropic", "datasets": "datasets", "pandas": "datasets", "pyarrow": "datasets"}
"""The extras of packages that environments for other programs may import without requiring them."""


def extra_of(module: str) -> str | None:
    """Returns the extra with a module, or None if it is in no extra that environments import from."""
    return _EXTRAS.get(module.partition(".")[0])


def installation(extra: str) -> str:
    """Returns the command that installs an extra."""
    return f"pip install 'nightjar-evals[{extra}]'"


def import_extra(module: str, extra: str, user: str) -> Any:
    """Imports a module of an extra. The ImportError names ``user`` and the command that installs the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{user} needs the package {error.name!r}, which is not installed: {installation(extra)}",
            name=error.name,
        ) from error


def require_extra(module: str, extra: str, user: str) -> Any:
    """Imports a module of an extra for a command. Raises ``ConfigError`` with the text of ``import_extra``."""
    try:
        return import_extra(module, extra, user)
    except ImportError as error:
        raise ConfigError(str(error)) from error
