"""Printing of text that a terminal must not obey: it may come from a model, an endpoint or a user's code."""

from __future__ import annotations

import sys
from typing import Any

import typer

from nightjar.core.text import harmless


def echo(text: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Replaces control characters on a terminal."""
    stream = sys.stderr if err else sys.stdout
    typer.echo(harmless(str(text)) if stream.isatty() else text, err=err, nl=nl)
