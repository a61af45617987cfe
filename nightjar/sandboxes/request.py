"""What a sandbox is asked to be: ``CreateSandboxRequest``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AdvancedConfigs(BaseModel):
    """Settings of a hosted sandbox service; accepted for compatibility, and of no effect here."""

    model_config = ConfigDict(extra="allow")


class CreateSandboxRequest(BaseModel):
    """The image, the limits and the variables of one sandbox."""

    model_config = ConfigDict(extra="allow")

    name: str = "sandbox"
    """Becomes part of the sandbox's id."""
    docker_image: str = "python:3.11-slim"
    """What a container is made of. A local sandbox shows the programs of this machine instead."""
    start_command: str | None = "tail -f /dev/null"
    """Runs in the background from the start; None and the default run nothing."""
    cpu_cores: float = Field(default=1, gt=0)
    memory_gb: float = Field(default=2, gt=0)
    """All processes and files in memory together, in GiB."""
    disk_size_gb: float = Field(default=5, gt=0)
    """What may be written at the most, in GiB. It is memory, so half of ``memory_gb`` is the upper limit."""
    gpu_count: int = Field(default=0, ge=0)
    timeout_minutes: float = Field(default=60, gt=0)
    """How long the sandbox lives at the most."""
    environment_vars: dict[str, str] | None = None
    """Set for every command. Nothing else of this process's environment is visible inside."""
    team_id: str | None = None
    """Accepted for compatibility, and of no effect here."""
    advanced_configs: AdvancedConfigs | None = None
    labels: list[str] = Field(default_factory=list)
    """Put on a container beside Nightjar's own."""
    python_packages: list[str] = Field(default_factory=list)
    """Names of distributions that Python inside can import, and all that they need."""
    are_packages_optional: bool = False
    """True goes without the packages that this machine does not have, with a warning."""
    max_processes: int = Field(default=256, gt=0)

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        return int(self.memory_gb * 2**30)

    @property
    def storage_bytes(self) -> int:
        """What may be written in bytes: files are in memory, so at most half of it."""
        return int(min(self.disk_size_gb, self.memory_gb / 2) * 2**30)

    @property
    def background_command(self) -> str | None:
        """The start command, where it does more than wait."""
        command = (self.start_command or "").strip()
        return None if command in {"", "tail -f /dev/null", "sleep infinity"} else command
