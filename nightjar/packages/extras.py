"""Imports packages that come with an extra of Nightjar."""

from __future__ import annotations

import importlib
from typing import Any


def import_extra(module: str, extra: str, user: str) -> Any:
    """Returns a module of an optional package.

    Args:
        module: what to import.
        extra: the extra of Nightjar that installs it.
        user: what needs it, for the message.

    Raises:
        ImportError: it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{user} needs the package {error.name!r}, which is not installed: pip install 'nightjar-evals[{extra}]'",
            name=error.name,
        ) from error
