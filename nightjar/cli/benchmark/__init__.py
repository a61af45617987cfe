"""``nightjar serve``, ``validate`` and ``package``: one benchmark, named as ENV or ``--bench ENV``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from nightjar.environments import Environment, load_environment
from nightjar.environments.packages.lookup import environments_in
from nightjar.environments.seeded.eval_environment import EvalEnvironment
from nightjar.environments.seeded.lookup import get_environment


def load_named(env: str | None, bench: str | None, env_args: str, folder: Path) -> EvalEnvironment:
    """Loads a benchmark; ``ConfigError`` if it does not exist, or takes several turns."""
    with environments_in(folder):
        return get_environment(_name(env, bench), **_object(env_args))


def load_environment_named(env: str | None, bench: str | None, env_args: str, folder: Path) -> Environment:
    """Loads an environment of any number of turns; ``ConfigError`` if it does not exist or cannot be loaded."""
    with environments_in(folder):
        return load_environment(_name(env, bench), **_object(env_args))


def _name(env: str | None, bench: str | None) -> str:
    if (env is None) == (bench is None):
        raise typer.BadParameter("Name one environment: ENV, or --bench ENV.")
    return str(env or bench)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--env-args is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise typer.BadParameter("--env-args must be a JSON object.")
    return found
