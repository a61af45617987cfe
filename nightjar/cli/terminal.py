"""Prints text from models, endpoints and users' code, whose control characters a terminal must not obey."""

from __future__ import annotations

import sys
from typing import Any

import typer

from nightjar.core.text import harmless


def echo(text: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a value; on a terminal, control characters are replaced.

    A live view replaces the streams; ``typer.echo`` would write past it, and damage it, unless it is given the stream.
    """
    stream, own = (sys.stderr, sys.__stderr__) if err else (sys.stdout, sys.__stdout__)
    shown = harmless(str(text)) if stream.isatty() else text
    typer.echo(shown, file=None if stream is own else stream, err=err, nl=nl)
