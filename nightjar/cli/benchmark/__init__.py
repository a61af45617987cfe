"""``nightjar serve``, ``validate`` and ``package``: one benchmark, named as ENV or ``--bench ENV``."""

from __future__ import annotations

import typer


def one_name(env: str | None, bench: str | None) -> str:
    if (env is None) == (bench is None):
        raise typer.BadParameter("Name one environment: ENV, or --bench ENV.")
    return str(env or bench)
