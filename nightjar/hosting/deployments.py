"""The deployments and the work pool that runs them: declared here, for ``nightjar up`` and deployments/prefect.yaml.

A test compares that file with what stands here. Which folder a deployment is of stands in its job variables, as the
label ``nightjar/folder`` of the processes that it starts.
"""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from prefect import Flow
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.types.entrypoint import EntrypointType

from flows.benchmark import benchmark
from flows.evaluation import evaluate
from flows.gating import gate
from flows.pruning import prune
from flows.publishing import publish_run
from flows.querying import query
from flows.rescoring import rescore
from flows.retrying import retry_failed
from flows.upkeep import upkeep
from nightjar.errors import ServiceError
from nightjar.hosting.automations import dead_runs
from nightjar.hosting.changes import Change
from nightjar.hosting.naming import POOL, prefixed
from nightjar.packages import ENVIRONMENTS_DIR, list_environments


class Deployment(NamedTuple):
    """A flow that is started by its name.

    Attributes:
        flow: the flow.
        description: for the UI.
        name: of the deployment; empty where it is called as the flow is.
        parameters: of its runs, unless a run or a schedule says otherwise.
    """

    flow: Flow[..., Any]
    description: str
    name: str = ""
    parameters: Mapping[str, Any] = {}


WORK_POOL = WorkPoolCreate(name=POOL, type="process")  # runs are processes on a worker's machine
DEPLOYMENTS = (
    Deployment(evaluate, "One environment, one model; results in the warehouse."),
    Deployment(query, "A question to the warehouse; the answer is a table artifact."),
    Deployment(benchmark, "A suite on a date: its evaluations, and whether anything is worse.", "nightly-benchmark"),
    Deployment(gate, "A night held against a policy; fails where that says NO-GO."),
    Deployment(retry_failed, "What is owed of runs that failed or crashed, each as the same flow run."),
    Deployment(rescore, "The rollouts of a run scored with the rubric as it is now, as a new run."),
    Deployment(publish_run, "A run directory on the worker's machine into the warehouse."),
    Deployment(prune, "Old runs out of the warehouse; shows first what would go."),
    Deployment(upkeep, "The warehouse examined and packed; fails where something is to be done."),
)
_FOLDER = "nightjar/folder"
_ENGINE = "-P -m nightjar.hosting.launch prefect.engine"


async def register(folder: Path, prefix: str = "", *, is_taken_over: bool = False) -> list[str]:
    """Registers the work pool, every deployment and the automation with the Prefect server that is configured.

    Args:
        folder, prefix, is_taken_over: as for ``planned_deployments``.

    Returns:
        The deployments' names, ``flow/deployment``.

    Raises:
        ServiceError: another folder, or somebody else, has registered them.
    """
    async with get_client() as client:
        await carry_out(client, await planned_deployments(client, folder, prefix, is_taken_over=is_taken_over))
    return [deployment_name(each, prefix) for each in DEPLOYMENTS]


async def carry_out(client: PrefectClient, changes: Sequence[Change]) -> None:
    """Does what is planned, in its order."""
    for change in changes:
        if change.make is not None:
            await change.make(client)


def of_suite(suite: Path, policy: Path | None = None) -> Deployment:
    """Returns the deployment that runs a suite, which is called as the suite is; a policy gates its nights."""
    parameters = {"suite": str(suite)} | ({"gate": str(policy)} if policy else {})
    return Deployment(benchmark, f"The suite {suite} on a date.", suite.stem, parameters)


def deployment_name(declared: Deployment, prefix: str = "") -> str:
    """Returns ``flow/deployment``."""
    return f"{declared.flow.name}/{prefixed(declared.name or declared.flow.name, prefix)}"


async def planned_deployments(
    client: PrefectClient,
    folder: Path,
    prefix: str = "",
    suites: Sequence[Deployment] = (),
    *,
    is_taken_over: bool = False,
) -> list[Change]:
    """Returns what makes a server have the work pool, every deployment, and the automation for dead runs.

    What is there already is changed in what belongs to the code alone: entrypoint, parameters' schema and version. The
    schema offers the environments that are known in the folder.
    Schedules, limits, tags, default parameters, job variables and descriptions stay as somebody has set them.

    Args:
        client: of the server.
        folder: where runs happen, and write ``./outputs``.
        prefix: what the names of the deployments and of the work pool begin with, for one's own.
        suites: deployments of suites, beside those of the folder that are there already.
        is_taken_over: whether deployments that another folder has registered become this one's.

    Raises:
        ServiceError: another folder, or somebody else, has registered them.
    """
    pool = WORK_POOL.model_copy(update={"name": prefixed(POOL, prefix)})
    declared = {prefixed(each.name or each.flow.name, prefix): each for each in (*DEPLOYMENTS, *suites)}
    declared = {**await _suites_there(client, folder), **declared}
    wanted = [await _deployment(name, each, folder, pool.name) for name, each in declared.items()]
    there = [await _read(client, each.full_name) for each in wanted]
    if not is_taken_over:
        for each in there:
            _check_owner(each, folder)
    changes = [await _planned_pool(client, pool), await dead_runs(client)]
    for new, old in zip(wanted, there, strict=True):
        changes.append(_planned(new, old, is_taken_over=is_taken_over))
    return changes


async def _suites_there(client: PrefectClient, folder: Path) -> dict[str, Deployment]:
    """Returns the deployments of a folder's suites that are there, so that they follow the code."""
    of_flow = FlowFilter(name=FlowFilterName(any_=[benchmark.name]))
    found = await client.read_deployments(flow_filter=of_flow)
    own = (each for each in found if each.job_variables.get("labels", {}).get(_FOLDER) == _owner(folder))
    return {each.name: Deployment(benchmark, each.description or "") for each in own}


async def _planned_pool(client: PrefectClient, pool: WorkPoolCreate) -> Change:
    what = f"work pool {pool.name}"
    try:
        await client.read_work_pool(pool.name)
    except ObjectNotFound:
        return Change(what, "create", partial(_make_pool, pool))
    return Change(what, "keep")


async def _make_pool(pool: WorkPoolCreate, client: PrefectClient) -> None:
    with suppress(ObjectAlreadyExists):  # somebody else has made it meanwhile
        await client.create_work_pool(pool)


async def _deployment(name: str, declared: Deployment, folder: Path, pool: str) -> RunnerDeployment:
    deployment = await declared.flow.ato_deployment(
        name=name,
        description=declared.description,
        parameters=dict(declared.parameters),
        entrypoint_type=EntrypointType.MODULE_PATH,
        work_pool_name=pool,
        job_variables={
            "working_dir": str(folder),
            "command": f"{shlex.quote(sys.executable)} {_ENGINE}",
            "labels": {_FOLDER: _owner(folder)},
        },
    )
    parameters = deployment._parameter_openapi_schema.properties  # noqa: SLF001 - has no public name
    if "env_id" in parameters:
        parameters["env_id"] = _offering(
            parameters["env_id"], [each.env_id for each in list_environments(folder / ENVIRONMENTS_DIR)]
        )
    return deployment


def _offering(parameter: dict[str, Any], choices: list[str]) -> dict[str, Any]:
    """Returns a parameter of text for which a form offers choices, and takes any other text.

    The choices have no type: the form would show them, and not the field, for any text that is being typed.
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


def _check_owner(there: DeploymentResponse | None, folder: Path) -> None:
    if there is None:
        return
    owner = there.job_variables.get("labels", {}).get(_FOLDER)
    if owner != _owner(folder):
        whose = f"belongs to the folder {owner}" if owner else "was not registered by 'nightjar up'"
        raise ServiceError(
            f"Deployment {there.name!r} on this server {whose}. Start it there, or have your own, with a work pool of "
            "your own: nightjar up --name-prefix NAME. To make it this folder's: nightjar up --take-over"
        )


def _planned(new: RunnerDeployment, old: DeploymentResponse | None, *, is_taken_over: bool) -> Change:
    """Returns what changes of a deployment: what belongs to the code."""
    what = f"deployment {new.full_name}"
    if old is None:
        return Change(what, "create", lambda _: new.aapply())
    wanted = {
        "entrypoint": new.entrypoint,
        "parameter_openapi_schema": new._parameter_openapi_schema.model_dump(exclude_unset=True),  # noqa: SLF001 - has no public name
        "version": new.version,
        "parameters": {**old.parameters, **new.parameters},
        "job_variables": _job_variables(old.job_variables, new.job_variables, is_taken_over=is_taken_over),
    }
    changed = {name: value for name, value in wanted.items() if getattr(old, name) != value}
    if not changed:
        return Change(what, "keep")
    details = tuple(
        f"{name}: {getattr(old, name)} → {value}" if isinstance(value, str) else name.removesuffix("_openapi_schema")
        for name, value in changed.items()
    )
    update = DeploymentUpdate(**changed)
    return Change(what, "change", lambda client: client.update_deployment(old.id, update), details)


def _job_variables(old: dict[str, Any], new: dict[str, Any], *, is_taken_over: bool) -> dict[str, Any]:
    """Returns the job variables that were set, with the command of this installation unless that is somebody's own."""
    is_own_command = not str(old.get("command", _ENGINE)).endswith(_ENGINE)
    kept = {**old, "command": old["command"] if is_own_command else new["command"]}
    if not is_taken_over:
        return kept
    return {**kept, "working_dir": new["working_dir"], "labels": {**old.get("labels", {}), **new["labels"]}}
