"""``nightjar down``: the end of what ``nightjar up`` started."""

from __future__ import annotations

import typer

from nightjar.hosting.supervisor import stop


def down() -> None:
    """Stop what 'nightjar up' started."""
    typer.echo("Stopped." if stop() else "Nothing is running.")
