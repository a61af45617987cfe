"""Places to run what a model writes: locally in namespaces (bubblewrap), or in containers (docker, podman).

provider.new_sandbox(request)  ->  Sandbox: start, exec, spawn, upload, download, close
"""

from nightjar.sandboxes.choosing import choose_provider
from nightjar.sandboxes.client import CommandTimeoutError, SandboxClient
from nightjar.sandboxes.containers import DockerProvider
from nightjar.sandboxes.local import LocalProvider
from nightjar.sandboxes.request import AdvancedConfigs, CreateSandboxRequest
from nightjar.sandboxes.sandbox import (
    CommandResult,
    Output,
    Sandbox,
    SandboxCreationError,
    SandboxNotAllowedError,
    SandboxNotReadyError,
    SandboxProcess,
    SandboxProvider,
    SandboxRefusedError,
    Stream,
)

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
