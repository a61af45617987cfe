"""``nightjar serve``, ``validate`` and ``package``: one benchmark, named as ENV or ``--bench ENV``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from nightjar.environments import Environment, load_environment
from nightjar.environments.packages.lookup import environments_in
from nightjar.environments.seeded.eval_environment import EvalEnvironment
from nightjar.environments.seeded.lookup import get_environment


def load_named(env: str | None, bench: str | None, env_args: dict[str, Any] | None, folder: Path) -> EvalEnvironment:
    with environments_in(folder):
        return get_environment(_name(env, bench), **(env_args or {}))


def load_environment_named(
    env: str | None, bench: str | None, env_args: dict[str, Any] | None, folder: Path
) -> Environment:
    with environments_in(folder):
        return load_environment(_name(env, bench), **(env_args or {}))


def _name(env: str | None, bench: str | None) -> str:
    if (env is None) == (bench is None):
        raise typer.BadParameter("Name one environment: ENV, or --bench ENV.")
    return str(env or bench)
