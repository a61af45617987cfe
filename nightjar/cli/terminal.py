"""What is printed for people: a terminal obeys nothing of what a model, an endpoint or somebody's code has said."""

from __future__ import annotations

import sys
from typing import Any

import typer

from nightjar.terminal import harmless


def echo(text: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a line on stdout, or on stderr; harmless where that is a terminal, and as it is where it is not."""
    stream = sys.stderr if err else sys.stdout
    typer.echo(harmless(str(text)) if stream.isatty() else text, err=err, nl=nl)
