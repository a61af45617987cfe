"""``nightjar sandbox``: the containers of rollouts, and the images that were built for tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from rich.console import Console

from nightjar.cli.options import JsonOption, option
from nightjar.cli.output import columns, print_json, print_some
from nightjar.cli.terminal import echo
from nightjar.core.text import counted
from nightjar.errors import ConfigError
from nightjar.sandboxes.engine import connect, docker_sdk
from nightjar.sandboxes.images import remove_images
from nightjar.sandboxes.ownership import OwnedContainer, owned_containers, remove_left
from nightjar.sandboxes.request import SandboxRefusedError

_TIMEOUT_SECONDS = 60
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def sandbox_list(as_json: JsonOption = False) -> None:
    """List the containers of Nightjar, and whether the processes that started them still run.

    Example: nightjar sandbox list
    """
    with _engine() as client:
        found = owned_containers(client)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    if not found:
        echo("There are no containers.")
        return
    headings = ("Container", "Task", "State", "Age", "Owner")
    Console().print(columns(headings, map(_row, found), numbers=("Age",)))
    if left := sum(each.is_owner_running is False for each in found):
        echo(f"The owners of {counted(left, 'container')} have ended. To remove them: nightjar sandbox prune", err=True)


def sandbox_prune(
    images: Annotated[bool, option("Also remove the images that Nightjar built and no container uses.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the containers whose owner has ended. Containers of processes that still run stay.

    Nightjar removes its containers itself. This command removes the containers that are left after a failure of the
    machine or of the container engine. A removed image is built again by the next run that needs it.

    Examples: nightjar sandbox prune | nightjar sandbox prune --images
    """
    with _engine() as client:
        removed = {"containers": remove_left(client), "images": remove_images(client) if images else []}
    if as_json:
        print_json(removed)
        return
    for kind, names in removed.items():
        if names or kind == "containers" or images:
            echo(f"Removed {counted(len(names), kind.removesuffix('s'))}")
            print_some(names)


@contextmanager
def _engine() -> Iterator[Any]:
    """Connects to the container engine. Turns its errors into a ``ConfigError`` that says what to do."""
    try:
        client = connect(_TIMEOUT_SECONDS)
    except SandboxRefusedError as error:
        if isinstance(error.__cause__, ImportError):
            raise ConfigError(str(error)) from error
        where = os.environ.get("DOCKER_HOST", "docker's usual socket")
        raise ConfigError(
            f"No container engine answers at {where}: {error.__cause__}. Start docker, or start podman's socket and "
            "set DOCKER_HOST (docs/guides/agents.md)"
        ) from error
    with closing(client):
        try:
            yield client
        except (docker_sdk().errors.DockerException, OSError) as error:
            raise ConfigError(f"The container engine refuses the request: {error}") from error


def _row(container: OwnedContainer) -> tuple[str, ...]:
    age = max(0.0, (datetime.now(UTC) - container.created_at).total_seconds())
    pid = f"process {container.owner_pid}"
    owners = {True: f"{pid} runs", False: f"{pid} has ended", None: f"{pid} on {container.owner_host}"}
    return container.name, container.task or "", container.state, _shown_age(age), owners[container.is_owner_running]


def _shown_age(seconds: float) -> str:
    unit, size = next((each for each in _UNITS if seconds >= each[1]), _UNITS[-1])
    return f"{int(seconds // size)} {unit}"
