"""Hands a run to a worker, with its environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

from nightjar.config import RunConfig
from nightjar.errors import ConfigError, ServiceError
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.custom_secrets import forget_old_secrets, keep_secrets
from nightjar.hosting.server import SETTINGS, page_of
from nightjar.packages import EnvironmentPackage, EvalDefaults
from nightjar.packages.catalog import known_environment
from nightjar.packages.provided import SENT
from nightjar.packages.source import pack, source_files, source_hash
from nightjar.parts import Part
from nightjar.runs import new_run_id

USUAL_MINUTES, MOST_MINUTES = 120, 1_440
"""How long a hosted run may take: where nobody says it, and at the most."""


@dataclass(frozen=True)
class Submitted:
    """A run that a worker does.

    Attributes:
        flow_run_id, name: of its flow run.
        deployment: ``flow/deployment``, whose worker does it.
        env_source: how its environment gets there; empty where it has to be there.
        page: of the flow run in Prefect's UI.
        run_id: the id of its run.
    """

    flow_run_id: str
    name: str
    deployment: str
    env_source: str
    page: str
    run_id: str


@dataclass(frozen=True)
class HostedOptions:
    """What is said of a hosted run besides its configuration.

    Attributes:
        name: of the flow run; empty for environment and model.
        allow_sandbox_access: the environment may make sandboxes.
        allow_instances_access: what the work pool starts may make instances.
        custom_secrets: variables of this run alone, with their values.
    """

    name: str = ""
    allow_sandbox_access: bool = False
    allow_instances_access: bool = False
    custom_secrets: Mapping[str, str] = field(default_factory=dict)


def submit(
    config: RunConfig,
    *,
    deployment: str,
    api_url: str,
    warehouse: str = "",
    options: HostedOptions = HostedOptions(),
) -> Submitted:
    """Starts a run of a deployment. An environment that is developed or installed here goes with it.

    Args:
        config: what to run; for fields that are not set the deployment's values hold.
        deployment: ``flow/deployment``.
        api_url: of Prefect's server.
        warehouse: where it is published; empty for the deployment's.
        options: what is said besides.

    Raises:
        ConfigError: the environment cannot be sent.
        ServiceError: the server does not answer, has no such deployment, or refuses.
    """
    api = PrefectApi(api_url)
    found = _deployment(api, deployment)
    env_source = config.env_source or _bring(config, api_url)
    # A worker has what the environment says of runs too late
    names = {*config.model_fields_set, *EvalDefaults.model_fields} - {"env_dir_path"}
    parameters = config.model_dump(mode="json", include=names) | {"env_source": env_source}
    if config.timeout_minutes is None and not found["parameters"].get("timeout_minutes"):
        parameters["timeout_minutes"] = USUAL_MINUTES
    if options.allow_sandbox_access:
        parameters["allow_sandbox_access"] = True
    if warehouse:
        parameters["warehouse"] = warehouse
    body = {"parameters": parameters, **_called(config, options.name)}
    if options.custom_secrets:
        forget_old_secrets(api)
        body["labels"] = keep_secrets(api, options.custom_secrets)
    flow_run = api.post(f"/deployments/{found['id']}/create_flow_run", body)
    run_id = config.part_of_run.run_id if config.part_of_run else new_run_id(UUID(flow_run["id"]))
    page = page_of(flow_run["id"], api_url)
    return Submitted(flow_run["id"], flow_run["name"], deployment, env_source, page, run_id)


def submit_parts(
    config: RunConfig,
    count: int,
    *,
    deployment: str,
    api_url: str,
    warehouse: str = "",
    options: HostedOptions = HostedOptions(),
) -> list[Submitted]:
    """Starts a run of a deployment in parts, a flow run each; the last to end joins them, see ``Part``.

    Args:
        config: what to run.
        count: how many parts.
        deployment, api_url, warehouse, options: as for ``submit``.

    Raises:
        ConfigError: there are more parts than examples, results are to be pushed, or the environment cannot be sent.
        ServiceError: the server does not answer, has no such deployment, or refuses; what was submitted goes on.
    """
    if config.save_to_hf_hub:
        raise ConfigError("save_to_hf_hub: parts are not pushed. Push the run when it is there: nightjar eval push RUN")
    if 0 <= config.num_examples < count:
        raise ConfigError(f"num_examples: {count} parts of {config.num_examples} examples: each needs one")
    submitted: list[Submitted] = []
    for part in Part.all_of(new_run_id(), count):
        config = config.model_copy(update={"part": str(part)})
        try:
            where = {"deployment": deployment, "api_url": api_url, "warehouse": warehouse}
            submitted.append(submit(config, **where, options=options))
        except ServiceError as error:
            if not submitted:
                raise
            raise ServiceError(f"{error}. From {part} on, parts are to be submitted with --part") from error
        if sent := submitted[0].env_source:
            config = config.model_copy(update={"env_source": sent})
    return submitted


def _called(config: RunConfig, name: str) -> dict[str, Any]:
    """Returns the name of the flow run, and the tag of one of a part; nothing where the flow run is to name itself."""
    usual = f"{config.env_id} | {config.model}"
    if part := config.part_of_run:
        named = f"{name or usual} | part {part.number} of {part.count}"
        return {"name": named, "tags": [f"run:{part.run_id}"]}
    return {"name": name or usual} if name or "model" in config.model_fields_set else {}


def _deployment(api: PrefectApi, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = api.get(f"/deployments/name/{quote(name)}")
    if found is None:
        raise ServiceError(
            f"There is no deployment {name!r} on {api.url}. 'nightjar up' registers evaluate/evaluate; "
            "'nightjar status' lists them"
        )
    return found


def check_options(config: RunConfig, options: HostedOptions, *, deployment: str, api_url: str) -> None:
    """Makes sure that a run can be had as it is asked for, before anything is handed over.

    Raises:
        ConfigError: it takes too long, or the deployment's work pool cannot do it.
        ServiceError: the server does not answer, or has no such deployment.
    """
    if config.timeout_minutes is not None and config.timeout_minutes > MOST_MINUTES:
        raise ConfigError(
            f"timeout_minutes: a hosted run takes at most {MOST_MINUTES} (24 hours) (found {config.timeout_minutes:g})"
        )
    api = PrefectApi(api_url)
    found = _deployment(api, deployment)
    if options.allow_instances_access:
        name = found["work_pool_name"]
        pool = api.get(f"/work_pools/{quote(name)}") if name else None
        kind = pool["type"] if pool else "process"
        if kind == "process":
            raise ConfigError(
                f"--allow-instances-access: the work pool {name!r} is of type 'process': its runs are processes on the "
                "worker's machine, and none of them can create instances. A pool of type kubernetes, or of a cloud, can"
            )


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
