"""Prints text from models, endpoints and users' code, whose control characters a terminal must not obey."""

from __future__ import annotations

import sys
from typing import Any

import typer

from nightjar.core.text import harmless


def echo(text: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a value; on a terminal, control characters are replaced."""
    stream = sys.stderr if err else sys.stdout
    typer.echo(harmless(str(text)) if stream.isatty() else text, err=err, nl=nl)
