"""Checks, before any request, that environments exist, that docker or podman answers, and that named keys are set."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from pathlib import Path

from nightjar.clients.credentials import resolve_api_key
from nightjar.core.environment_id import EnvironmentId, is_uri
from nightjar.environments.packages.catalog import known_environment, list_environments
from nightjar.errors import ConfigError, EnvironmentNotFoundError, EnvironmentVersionError, SandboxError
from nightjar.evaluation.config import Evaluation, RunConfig
from nightjar.evaluation.config.precedence import WRITTEN

_OF_IMAGES = "container://"
_EPOCHS = "nightjar.environments.inspect_tasks.address:task_epochs"
_HARBOR_TASKS = "nightjar.environments.agents.harbor_task:find_tasks"
_ENVIRONMENT = "nightjar.environments.seeded.bridge:environment_of_uri"
_SLOW_SCHEMES = frozenset({"container", "gym", "lm-eval", "vlmevalkit"})
"""Schemes whose environments need a server, a container or a large package."""


def check_environments(configs: Sequence[RunConfig]) -> None:
    missing = list(dict.fromkeys(config.env_id for config in configs if _is_missing(config)))
    if missing:
        known = [package.env_id for package in list_environments(configs[0].environments_dir)]
        raise EnvironmentNotFoundError(missing, known)


def check_engines(configs: Sequence[RunConfig]) -> None:
    """Checks that docker or podman answers if a run needs an evaluation image."""
    for env_id in (config.env_id for config in configs):
        if not env_id.startswith(_OF_IMAGES) or "#" not in env_id:  # without a task, loading refuses it
            continue
        from nightjar.sandboxes.providers import find_engine

        try:
            find_engine()
        except SandboxError as error:
            raise ConfigError(f"{env_id!r} needs docker or podman. {error}") from error


def check_tasks(configs: Sequence[RunConfig]) -> None:
    """Checks what URIs name, if that is quick. Sends no requests to a model.

    Loads the tasks of Inspect, whose epochs are a default of the run, and benchmarks of NeMo Skills; finds the tasks of
    Harbor. Raises ``ConfigError`` for an unknown scheme.
    """
    for config in filter(lambda one: is_uri(one.env_id), configs):
        scheme, _, path = config.env_id.partition("://")
        if scheme == "inspect":
            pkgutil.resolve_name(_EPOCHS)(config.env_id, dict(config.env_args))
        elif scheme == "harbor":
            names = config.env_args.get("tasks")
            pkgutil.resolve_name(_HARBOR_TASKS)(Path(path), [names] if isinstance(names, str) else names)
        elif scheme not in _SLOW_SCHEMES:
            pkgutil.resolve_name(_ENVIRONMENT)(config.env_id, dict(config.env_args))


def check_named_keys(evaluations: Sequence[Evaluation]) -> None:
    """Checks that each key variable that a user named is set, even if the endpoint needs no key."""
    for evaluation in evaluations:
        if evaluation.sources["api_key_var"] in WRITTEN:
            resolve_api_key(evaluation.config.client_config(), is_needed=True)


def _is_missing(config: RunConfig) -> bool:
    asked = EnvironmentId.parse(config.env_id)
    if config.env_source or (asked.owner and asked.version) or is_uri(config.env_id):  # it will be fetched
        return False
    try:
        return known_environment(config.env_id, config.environments_dir) is None
    except EnvironmentVersionError:
        return False  # reported when it is loaded, with the known versions
