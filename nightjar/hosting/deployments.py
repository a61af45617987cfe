"""Nightjar's deployments and work pool, for ``nightjar up``, ``nightjar deploy`` and deployments/prefect.yaml.

A test compares deployments/prefect.yaml with ``DEPLOYMENTS``. The label ``nightjar/folder`` in the job variables of a
deployment names the folder that registered the deployment.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from prefect import Flow
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import FlowFilter
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.callables import ParameterSchema

from nightjar.core.environment_id import ENVIRONMENTS_DIR
from nightjar.environments.packages.catalog import list_environments
from nightjar.errors import ServiceError
from nightjar.flows.evaluation import evaluate
from nightjar.flows.gating import gate
from nightjar.flows.maintenance import upkeep
from nightjar.flows.nights import benchmark
from nightjar.flows.pruning import prune
from nightjar.flows.publishing import publish_run
from nightjar.flows.querying import query
from nightjar.flows.rescoring import rescore
from nightjar.flows.retrying import retry_failed
from nightjar.hosting.automations import (
    Change,
    cron_schedule,
    dead_runs,
    longest_pause,
    night_notifications,
    planned_schedule,
)
from nightjar.hosting.server import FOLDER_LABEL, HEARTBEATS, POOL, prefixed
from nightjar.hosting.work_pools import PoolType, is_former, planned_pool


class Deployment(NamedTuple):
    """A flow that can be started by name. If the deployment's name is empty, the flow's name is used."""

    flow: Flow[..., Any]
    description: str
    name: str = ""
    parameters: Mapping[str, Any] = {}


DEPLOYMENTS = (
    Deployment(evaluate, "Evaluates a model in an environment and publishes the results."),
    Deployment(query, "Queries the warehouse; the answer is a table artifact."),
    Deployment(benchmark, "Runs a suite for a date, and checks whether anything is worse.", "nightly-benchmark"),
    Deployment(gate, "Checks a night against a policy; fails for NO-GO."),
    Deployment(retry_failed, "Retries runs that failed or crashed, each as the same flow run."),
    Deployment(rescore, "Scores the rollouts of a run with the present rubric, as a new run."),
    Deployment(publish_run, "Publishes a run directory on the worker's machine into the warehouse."),
    Deployment(prune, "Removes old runs from the warehouse; shows them first."),
    Deployment(upkeep, "Examines and packs the warehouse; fails if something needs action."),
)

_DEFAULT = "that of the work pool"


@dataclass(frozen=True)
class Wanted:
    """The target state of a server.

    Attributes:
        folder: the folder in which runs run and write ``./outputs``. The schema of parameters offers its environments.
        prefix: the prefix of the names of deployments and work pool.
        is_taken_over: whether deployments that another folder registered become this folder's deployments.
        suite: a suite that gets a deployment, relative to ``folder``. Existing deployments of suites in the folder are
            updated as well.
        gate: the policy of the suite, relative to ``folder``. If None, the suite keeps its own gate.
        notify: a notification block, such as ``slack-webhook/team``.
        pool: the type of the work pool. If None, an existing pool may be of any type, and a new one runs processes.
        image: the image of a pool of type ``docker``. If None, an existing pool keeps its image.
    """

    folder: Path
    prefix: str = ""
    is_taken_over: bool = False
    suite: Path | None = None
    cron: str | None = None
    gate: Path | None = None
    retry_cron: str | None = None
    upkeep_cron: str | None = None
    time_zone: str = "UTC"
    notify: str | None = None
    pool: PoolType | None = None
    image: str | None = None

    def suites(self) -> list[Deployment]:
        if self.suite is None:
            return []
        parameters = {"suite": str(self.suite)} | ({"gate": str(self.gate)} if self.gate else {})
        return [Deployment(benchmark, f"The suite {self.suite} on a date.", self.suite.stem, parameters)]


async def deploy(wanted: Wanted, confirm: Callable[[Sequence[Change]], bool] = lambda _: True) -> list[Change]:
    """Makes the changes if ``confirm`` accepts them. Returns the changes, or no changes if they were not accepted."""
    async with get_client() as client:
        changes = [*await _planned_deployments(client, wanted), *await _planned_schedules(client, wanted)]
        if not confirm(changes):
            return []
        for change in changes:
            if change.make is not None:
                await change.make(client)
    return changes


def deployment_name(declared: Deployment, prefix: str = "") -> str:
    return f"{declared.flow.name}/{prefixed(declared.name or declared.flow.name, prefix)}"


async def _planned_deployments(client: PrefectClient, wanted: Wanted) -> list[Change]:
    """Returns the changes that give a server the work pool, all deployments, and the automation for dead runs.

    In an existing deployment, only the entrypoint, the schema of parameters, the version, and a command of an earlier
    version are changed. Other settings stay as the user has set them.
    """
    folder, is_taken_over = wanted.folder, wanted.is_taken_over
    pool = prefixed(POOL, wanted.prefix)
    known = [_with_own_evaluations(each, wanted.prefix) for each in (*DEPLOYMENTS, *wanted.suites())]
    declared = {prefixed(each.name or each.flow.name, wanted.prefix): each for each in known}
    declared = {**await _suites_there(client, folder), **declared}
    after = [await _deployment(name, each, folder, pool) for name, each in declared.items()]
    before = [await _read(client, each.full_name) for each in after]
    if not is_taken_over:
        for each in filter(None, before):
            _check_owner(each, folder)
    planned = await planned_pool(client, pool, wanted.pool, folder, wanted.image, is_taken_over=is_taken_over)
    changes = [planned, await dead_runs(client)]
    for new, old in zip(after, before, strict=True):
        changes.append(_planned(new, old, is_taken_over=is_taken_over))
    return changes


def _with_own_evaluations(declared: Deployment, prefix: str) -> Deployment:
    """Returns a deployment whose nights run their evaluations with the deployment of the same prefix and work pool."""
    if declared.flow is not benchmark or not prefix:
        return declared
    own = deployment_name(Deployment(evaluate, ""), prefix)
    return declared._replace(parameters={"deployment": own, **declared.parameters})


async def _planned_schedules(client: PrefectClient, wanted: Wanted) -> list[Change]:
    flows = ((Deployment(retry_failed, ""), wanted.retry_cron), (Deployment(upkeep, ""), wanted.upkeep_cron))
    changes = []
    for declared, cron in (*((suite, wanted.cron) for suite in wanted.suites()), *flows):
        if cron is not None:
            name, schedule = declared.name or declared.flow.name, cron_schedule(cron, wanted.time_zone)
            full_name = deployment_name(declared, wanted.prefix)
            changes.append(await planned_schedule(client, full_name, name, schedule))
            if declared.flow is benchmark and wanted.notify is not None:
                changes += await night_notifications(client, name, longest_pause(cron), wanted.notify)
    return changes


async def _suites_there(client: PrefectClient, folder: Path) -> dict[str, Deployment]:
    of_flow = FlowFilter.model_validate({"name": {"any_": [benchmark.name]}})
    found = await client.read_deployments(flow_filter=of_flow)
    own = (each for each in found if each.job_variables.get("labels", {}).get(FOLDER_LABEL) == _owner(folder))
    return {each.name: Deployment(benchmark, each.description or "") for each in own}


async def _deployment(name: str, declared: Deployment, folder: Path, pool: str) -> RunnerDeployment:
    deployment = await declared.flow.ato_deployment(
        name=name,
        description=declared.description,
        parameters=dict(declared.parameters),
        entrypoint_type=EntrypointType.MODULE_PATH,
        work_pool_name=pool,
        job_variables={
            "working_dir": str(folder),
            "labels": {FOLDER_LABEL: _owner(folder)},
            "env": {name: os.environ.get(name, value) for name, value in HEARTBEATS.items()},
        },
    )
    schema = _Schema(**deployment._parameter_openapi_schema.model_dump(exclude_unset=True), additionalProperties=False)  # noqa: SLF001 - has no public name
    if "env_id" in schema.properties:
        known = [each.env_id for each in list_environments(folder / ENVIRONMENTS_DIR)]
        schema.properties["env_id"] = _offering(schema.properties["env_id"], known)
    deployment._parameter_openapi_schema = schema  # noqa: SLF001
    return deployment


class _Schema(ParameterSchema):
    """Parameters of a flow. The server refuses a run with a parameter of another name before it stores the run."""

    additionalProperties: bool  # noqa: N815 - a word of JSON Schema


def _offering(parameter: dict[str, Any], choices: list[str]) -> dict[str, Any]:
    """Returns a text parameter that offers choices in a form and accepts any other text.

    The choices have no type. With a type, the form would replace the text field by the choices.
    """
    text = {name: parameter[name] for name in ("type", "minLength")}
    shown = {name: value for name, value in parameter.items() if name not in text}
    return {**shown, "anyOf": [{"title": "Known here", "enum": choices}, {"title": "Any name", **text}]}


async def _read(client: PrefectClient, name: str) -> DeploymentResponse | None:
    try:
        return await client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def _owner(folder: Path) -> str:
    return f"{socket.gethostname()}:{folder}"


def _check_owner(there: DeploymentResponse, folder: Path) -> None:
    owner = there.job_variables.get("labels", {}).get(FOLDER_LABEL)
    if owner != _owner(folder):
        whose = f"belongs to the folder {owner}" if owner else "was not registered by 'nightjar up'"
        raise ServiceError(
            f"Deployment {there.name!r} on this server {whose}. Start it there, or register your own, with your own "
            "work pool: nightjar up --name-prefix NAME. To make it this folder's: nightjar up --take-over"
        )


def _planned(new: RunnerDeployment, old: DeploymentResponse | None, *, is_taken_over: bool) -> Change:
    what = f"deployment {new.full_name}"
    if old is None:
        return Change(what, "create", lambda _: new.aapply())
    kept = {"deployment"} & old.parameters.keys()  # a user may have chosen another one
    wanted = {
        "entrypoint": new.entrypoint,
        "parameter_openapi_schema": new._parameter_openapi_schema.model_dump(exclude_unset=True),  # noqa: SLF001 - has no public name
        "version": new.version,
        "work_pool_name": old.work_pool_name or new.work_pool_name,  # None if a user has deleted the pool
        "parameters": old.parameters | {name: new.parameters[name] for name in new.parameters if name not in kept},
        "job_variables": _job_variables(old.job_variables, new.job_variables, is_taken_over=is_taken_over),
    }
    changed = {name: value for name, value in wanted.items() if getattr(old, name) != value}
    if not changed:
        return Change(what, "keep")
    details = tuple(line for name, value in changed.items() for line in _differing(name, getattr(old, name), value))
    update = DeploymentUpdate(**changed)
    return Change(what, "change", lambda client: client.update_deployment(old.id, update), details)


def _differing(name: str, before: Any, after: Any) -> list[str]:
    if name == "job_variables":
        names = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        return [f"{key}: {before.get(key, _DEFAULT)} → {after.get(key, _DEFAULT)}" for key in names]
    return [f"{name}: {before} → {after}" if isinstance(after, str) else name.removesuffix("_openapi_schema")]


def _job_variables(old: dict[str, Any], new: dict[str, Any], *, is_taken_over: bool) -> dict[str, Any]:
    kept = {name: value for name, value in old.items() if name != "command" or not is_former(value)}
    if is_taken_over:
        kept |= {"working_dir": new["working_dir"], "labels": {**old.get("labels", {}), **new["labels"]}}
    return kept
