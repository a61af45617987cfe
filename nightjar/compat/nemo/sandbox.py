"""What a benchmark asks of a sandbox, with the names of ``nemo_evaluator.sandbox``.

``SeedResult.sandbox_spec`` is served to clients (``nightjar serve``). Nightjar itself starts no sandbox for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nightjar.sandboxes import Sandbox

__all__ = [
    "ExecResult", "ImageBuildRequest", "ImageSpec", "OutsideEndpoint", "Sandbox", "SandboxSpec", "VolumeMount",
]  # fmt: skip


@dataclass
class VolumeMount:
    """A folder of the host, or of a network file system, in the container."""

    host_path: str = ""
    container_path: str = ""
    readonly: bool = False
    efs_filesystem_id: str | None = None
    efs_root_directory: str | None = None
    efs_access_point_id: str | None = None


@dataclass
class SandboxSpec:
    """The container of a problem. ``environment_dir`` has the Dockerfile of an image that must be built."""

    image: str
    workdir: str = "/workspace"
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    entrypoint: str | None = None
    volumes: list[VolumeMount] = field(default_factory=list)
    environment_dir: str | None = None


@dataclass
class ExecResult:
    """The result of a command in a container."""

    stdout: str
    stderr: str
    return_code: int


@dataclass
class OutsideEndpoint:
    """A URL of the host that the container finds in a variable."""

    url: str
    env_var: str


@dataclass
class ImageSpec:
    """An image that may have to be built; ``source`` is for the function that builds it."""

    image: str
    source: dict[str, Any] = field(default_factory=dict)


@dataclass
class ImageBuildRequest:
    """The images of a benchmark, and the functions that build them."""

    specs: list[ImageSpec]
    docker_build_fn: Callable[[list[ImageSpec]], None] | None = None
    codebuild_buildspec_fn: Callable[[list[ImageSpec], str, str | None, str | None], str] | None = None
