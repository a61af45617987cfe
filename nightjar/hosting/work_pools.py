"""The work pool of the deployments: its runs are processes on a worker's machine, or containers."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import WorkPool
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

from nightjar.errors import ServiceError
from nightjar.hosting.automations import Change
from nightjar.hosting.container_pool import (
    container_defaults,
    container_template,
    defaults_of_folder,
    is_container_template,
)

PoolType: TypeAlias = Literal["process", "docker"]

_COMMAND = "python -m prefect.engine"
_FORMER_COMMAND = "-m nightjar.hosting.launch prefect.engine"
"""The end of the command in earlier versions. Prefect's own command replaces such a command."""
_SHOWN = ("image", "volumes", "user")


def is_former(command: object) -> bool:
    return isinstance(command, str) and command.endswith(_FORMER_COMMAND)


async def planned_pool(
    client: PrefectClient, name: str, kind: PoolType | None, folder: Path, image: str | None, *, is_taken_over: bool
) -> Change:
    """Returns the change that creates or updates the work pool.

    ``kind`` is the type of a new pool, or None if an existing pool may be of any type. Raises ``ServiceError`` if an
    existing pool is of another type.
    """
    try:
        pool = await client.read_work_pool(name)
    except ObjectNotFound:
        return _created(name, kind, folder, image)
    if kind not in {None, pool.type}:
        raise ServiceError(
            f"The work pool {name!r} on this server is of the type {pool.type!r}, which cannot be changed. Use another "
            "pool: --name-prefix NAME"
        )
    if kind == "docker" and not is_container_template(pool.base_job_template):
        return _replaced(pool, folder, image)
    wanted = defaults_of_folder(folder) if kind == "docker" and is_taken_over else {}
    return _updated(pool, wanted | ({"image": image} if image else {}))


def _created(name: str, kind: PoolType | None, folder: Path, image: str | None) -> Change:
    if kind != "docker":
        return _creation(WorkPoolCreate(name=name, type="process"))
    defaults = container_defaults(folder, image)
    new = WorkPoolCreate(name=name, type="docker", base_job_template=container_template(defaults))
    return _creation(new, "type: docker", *_shown(defaults))


def _creation(pool: WorkPoolCreate, *details: str) -> Change:
    return Change(f"work pool {pool.name}", "create", partial(_make, pool), details)


def _replaced(pool: WorkPool, folder: Path, image: str | None) -> Change:
    """Replaces the template of a pool that a worker or a person created, and keeps the defaults that are set."""
    kept = {variable: value for variable, value in _defaults(pool).items() if value}
    defaults = {**container_defaults(folder, image), **kept} | ({"image": image} if image else {})
    details = ("template: that of Prefect → that of Nightjar", *_shown(defaults))
    return _update(pool, container_template(defaults), details)


def _updated(pool: WorkPool, wanted: dict[str, Any]) -> Change:
    """Changes the wanted defaults, and a command of an earlier version."""
    before = _defaults(pool)
    wanted |= {"command": _COMMAND} if is_former(before.get("command")) else {}
    changed = {variable: value for variable, value in wanted.items() if before.get(variable) != value}
    if not changed:
        return Change(f"work pool {pool.name}", "keep")
    template = pool.base_job_template
    for variable, value in changed.items():
        template["variables"]["properties"].setdefault(variable, {})["default"] = value
    details = (f"{variable}: {before.get(variable)} → {value}" for variable, value in changed.items())
    return _update(pool, template, tuple(details))


def _update(pool: WorkPool, template: dict[str, Any], details: tuple[str, ...]) -> Change:
    update = WorkPoolUpdate(base_job_template=template)
    return Change(
        f"work pool {pool.name}", "change", lambda client: client.update_work_pool(pool.name, update), details
    )


async def _make(pool: WorkPoolCreate, client: PrefectClient) -> None:
    with suppress(ObjectAlreadyExists):  # another process created it
        await client.create_work_pool(pool)


def _defaults(pool: WorkPool) -> dict[str, Any]:
    variables = pool.base_job_template.get("variables", {}).get("properties", {})
    return {variable: schema.get("default") for variable, schema in variables.items()}


def _shown(defaults: dict[str, Any]) -> list[str]:
    return [f"{variable}: {defaults[variable]}" for variable in _SHOWN]
