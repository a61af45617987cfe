"""``nightjar env list``: the environments that can be run."""

from __future__ import annotations

from typing import Annotated

import typer


def env_list(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the built-in environments and those in ./environments."""
    import json

    from nightjar.envs import installed_environments

    names = installed_environments()
    typer.echo(json.dumps(names) if as_json else "\n".join(names))
