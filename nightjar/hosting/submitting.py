"""Hands a run to a worker, with its environment."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from nightjar.config import RunConfig
from nightjar.errors import ServiceError
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.server import SETTINGS, page_of
from nightjar.packages import EnvironmentPackage, EvalDefaults
from nightjar.packages.catalog import known_environment
from nightjar.packages.provided import SENT
from nightjar.packages.source import pack, source_files, source_hash


@dataclass(frozen=True)
class Submitted:
    """A run that a worker does.

    Attributes:
        flow_run_id, name: of its flow run.
        deployment: ``flow/deployment``, whose worker does it.
        env_source: how its environment gets there; empty where it has to be there.
        page: of the flow run in Prefect's UI.
    """

    flow_run_id: str
    name: str
    deployment: str
    env_source: str
    page: str


def submit(config: RunConfig, *, deployment: str, api_url: str, warehouse: str = "") -> Submitted:
    """Starts a run of a deployment. An environment that is developed or installed here goes with it.

    Args:
        config: what to run; for fields that are not set the deployment's values hold.
        deployment: ``flow/deployment``.
        api_url: of Prefect's server.
        warehouse: where it is published; empty for the deployment's.

    Raises:
        ConfigError: the environment cannot be sent.
        ServiceError: the server does not answer, has no such deployment, or refuses.
    """
    api = PrefectApi(api_url)
    found = api.get(f"/deployments/name/{deployment}")
    if found is None:
        raise ServiceError(
            f"There is no deployment {deployment!r} on {api_url}. 'nightjar up' registers evaluate/evaluate; "
            "'nightjar status' lists them"
        )
    env_source = config.env_source or _bring(config, api_url)
    # A worker has what the environment says of runs too late
    names = {*config.model_fields_set, *EvalDefaults.model_fields} - {"env_dir_path"}
    parameters = config.model_dump(mode="json", include=names) | {"env_source": env_source}
    if warehouse:
        parameters["warehouse"] = warehouse
    flow_run = api.post(f"/deployments/{found['id']}/create_flow_run", {"parameters": parameters})
    return Submitted(flow_run["id"], flow_run["name"], deployment, env_source, page_of(flow_run["id"], api_url))


def _bring(config: RunConfig, api_url: str) -> str:
    """Sends the environment where it is one of this machine's own, and returns where a worker gets it from."""
    package = known_environment(config.env_id, config.environments_dir)
    if package is None or package.origin == "built-in":
        return ""
    if package.origin == "installed" and package.editable_from is None and package.distribution:
        return f"{package.distribution}@{package.installed_version}"
    return _send(package, api_url)


def _send(package: EnvironmentPackage, api_url: str) -> str:
    files = source_files(package)
    archive, source = pack(files), SENT + source_hash(files)
    os.environ.update({**SETTINGS, "PREFECT_API_URL": api_url})
    from tasks.sent_environments import send

    asyncio.run(send(source, archive))
    return source
