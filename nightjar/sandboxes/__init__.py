"""Sandboxes for code that a model writes: local namespaces (bubblewrap) or containers (docker, podman)."""

from nightjar.sandboxes.client import CommandTimeoutError, SandboxClient
from nightjar.sandboxes.containers import DockerProvider
from nightjar.sandboxes.local import LocalProvider
from nightjar.sandboxes.providers import choose_provider
from nightjar.sandboxes.request import (
    AdvancedConfigs,
    CreateSandboxRequest,
    SandboxCreationError,
    SandboxNotAllowedError,
    SandboxNotReadyError,
    SandboxRefusedError,
)
from nightjar.sandboxes.sandbox import CommandResult, Output, Sandbox, SandboxProcess, SandboxProvider, Stream

__all__ = [
    "AdvancedConfigs",
    "CommandResult",
    "CommandTimeoutError",
    "CreateSandboxRequest",
    "DockerProvider",
    "LocalProvider",
    "Output",
    "Sandbox",
    "SandboxClient",
    "SandboxCreationError",
    "SandboxNotAllowedError",
    "SandboxNotReadyError",
    "SandboxProcess",
    "SandboxProvider",
    "SandboxRefusedError",
    "Stream",
    "choose_provider",
]
