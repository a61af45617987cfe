"""``inspect://FILE.py@task`` and ``inspect://PACKAGE/task``, and the way from such a URI to its environment."""

from __future__ import annotations

import json
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from nightjar.core.environment_id import INSPECT, file_of_task
from nightjar.core.extras import import_extra
from nightjar.environments.environment import Environment
from nightjar.environments.packages.lookup import sent_file
from nightjar.errors import ConfigError, EnvironmentImportError, NightjarError

_ENVIRONMENT = "nightjar.environments.inspect_tasks.inspect_env:InspectEnv"
_EPOCHS = "nightjar.environments.inspect_tasks.task_loading:epochs_of"


@dataclass(frozen=True)
class TaskAddress:
    """A task as Inspect names it (``spec``), its file if it is in a file, and the arguments in the URI's query.

    Example:
        >>> parse_address("inspect://evals/sums.py@sums?difficulty=3")
        TaskAddress(spec='evals/sums.py@sums', file=PosixPath('evals/sums.py'), args={'difficulty': 3})
    """

    spec: str
    file: Path | None
    args: dict[str, Any] = field(default_factory=dict)


def parse_address(uri: str) -> TaskAddress:
    spec, _, query = uri.removeprefix(INSPECT).partition("?")
    args = {name: _value(text) for name, text in parse_qsl(query, keep_blank_values=True)}
    if (file := file_of_task(uri)) is not None:
        found = sent_file(file)
        return TaskAddress(f"{found}{spec.removeprefix(str(file))}", found, args)
    if "@" in spec or not all(spec.partition("/")):
        raise ConfigError(f"{uri!r} names no task. Write {INSPECT}FILE.py@task or {INSPECT}PACKAGE/task")
    return TaskAddress(spec, None, args)


def inspect_environment(uri: str, **env_args: Any) -> Environment:
    """Makes the environment of an ``inspect://`` URI."""
    _require_inspect(uri)
    environment: Environment = pkgutil.resolve_name(_ENVIRONMENT)(parse_address(uri), **env_args)
    return environment


def default_rollouts(uri: str, env_args: dict[str, Any]) -> int | None:
    """Returns the epochs of a task; None if the task cannot be loaded here, which loading it for a run reports."""
    try:
        return task_epochs(uri, env_args)
    except NightjarError:
        return None


def task_epochs(uri: str, env_args: dict[str, Any]) -> int:
    """Loads a task, and returns its epochs. Raises the errors of ``load_task``."""
    _require_inspect(uri)
    epochs: int = pkgutil.resolve_name(_EPOCHS)(parse_address(uri), env_args)
    return epochs


def _require_inspect(uri: str) -> None:
    try:
        import_extra("inspect_ai", "inspect", INSPECT)
    except ImportError as error:
        raise EnvironmentImportError(uri, str(error), "") from error


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
