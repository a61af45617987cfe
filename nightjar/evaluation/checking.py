"""Checks, before any request, that environments exist, that docker or podman answers, and that named keys are set."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence

from nightjar.clients.credentials import resolve_api_key
from nightjar.core.environment_id import INSPECT, EnvironmentId, is_uri
from nightjar.environments.packages.catalog import known_environment, list_environments
from nightjar.errors import ConfigError, EnvironmentNotFoundError, EnvironmentVersionError, SandboxError
from nightjar.evaluation.config import Evaluation, RunConfig
from nightjar.evaluation.config.precedence import WRITTEN

_OF_IMAGES = "container://"
_EPOCHS = "nightjar.environments.inspect_tasks.address:task_epochs"


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
    """Loads the tasks of Inspect, whose epochs are a default of the run. Sends no requests to a model."""
    for config in configs:
        if config.env_id.startswith(INSPECT):
            pkgutil.resolve_name(_EPOCHS)(config.env_id, dict(config.env_args))


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
