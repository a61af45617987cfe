"""Requests for sandboxes: ``CreateSandboxRequest``, the permission to start sandboxes, and the errors of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field

from nightjar.errors import SandboxError

_runs_without_access: list[object] = []


class SandboxCreationError(SandboxError):
    """A sandbox did not start."""


class SandboxRefusedError(SandboxCreationError):
    """This machine cannot start the requested sandbox. A retry would not help."""


class SandboxNotAllowedError(SandboxRefusedError):
    """This run has no permission to start a sandbox."""


class SandboxNotReadyError(SandboxError):
    """A sandbox was not ready in time."""


class AdvancedConfigs(BaseModel):
    """Settings of a hosted sandbox service. Accepted for compatibility, without effect."""

    model_config = ConfigDict(extra="allow")


class CreateSandboxRequest(BaseModel):
    """The image, limits and environment variables of one sandbox."""

    model_config = ConfigDict(extra="allow")

    name: str = "sandbox"
    """A name that becomes part of the sandbox's id."""
    docker_image: str = "python:3.11-slim"
    """The image of a container. A local sandbox shows the programs of this machine instead."""
    start_command: str | None = "tail -f /dev/null"
    """A command that runs in the background from the start. None and the default run no command."""
    cpu_cores: float = Field(default=1, gt=0)
    memory_gb: float = Field(default=2, gt=0)
    """Limit for all processes and all files in memory together, in GiB."""
    disk_size_gb: float = Field(default=5, gt=0)
    """Limit for files, in GiB. Files are held in memory, so at most half of ``memory_gb`` is available."""
    gpu_count: int = Field(default=0, ge=0)
    timeout_minutes: float = Field(default=60, gt=0)
    """Maximum lifetime of the sandbox in minutes."""
    environment_vars: dict[str, str] | None = None
    """Environment variables for every command. Environment variables of this process are not visible inside."""
    team_id: str | None = None
    """Accepted for compatibility, without effect."""
    advanced_configs: AdvancedConfigs | None = None
    labels: list[str] = Field(default_factory=list)
    """Labels that are added to a container's labels."""
    python_packages: list[str] = Field(default_factory=list)
    """Distributions that Python inside can import, together with their dependencies."""
    are_packages_optional: bool = False
    """If True, packages that are not installed on this machine are skipped with a warning."""
    max_processes: int = Field(default=256, gt=0)

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        return int(self.memory_gb * 2**30)

    @property
    def storage_bytes(self) -> int:
        """The limit for files in bytes: at most half of the memory, which holds them."""
        return int(min(self.disk_size_gb, self.memory_gb / 2) * 2**30)

    @property
    def background_command(self) -> str | None:
        """The start command, or None if the start command only waits."""
        command = (self.start_command or "").strip()
        return None if command in {"", "tail -f /dev/null", "sleep infinity"} else command


@contextmanager
def sandbox_access(*, is_allowed: bool) -> Iterator[None]:
    """Forbids sandboxes in this process during the block, unless ``is_allowed``.

    This does not confine environment code.
    """
    if is_allowed:
        yield
        return
    run = object()
    _runs_without_access.append(run)
    try:
        yield
    finally:
        _runs_without_access.remove(run)


def check_sandbox_access() -> None:
    """Raises ``SandboxNotAllowedError`` inside a hosted run that was not allowed to use sandboxes."""
    if _runs_without_access:
        raise SandboxNotAllowedError(
            "The environment asks for a sandbox, and this run has no permission to use one. Allow it: "
            "--allow-sandbox-access with --hosted, or 'allow_sandbox_access' in the form"
        )
