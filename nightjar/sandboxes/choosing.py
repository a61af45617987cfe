"""Which kind of sandbox is used: what the program says, what ``NIGHTJAR_SANDBOX`` says, or what there is."""

from __future__ import annotations

import os
from pathlib import Path

from nightjar.errors import ConfigError
from nightjar.sandboxes.containers import DockerProvider
from nightjar.sandboxes.local import LocalProvider
from nightjar.sandboxes.sandbox import SandboxProvider

VARIABLE = "NIGHTJAR_SANDBOX"
_NAMES = ("docker", "local", "podman")
_USUAL_SOCKET = Path("/var/run/docker.sock")


def choose_provider(chosen: str | SandboxProvider | None = None, max_workers: int = 50) -> SandboxProvider:
    """Returns the provider of sandboxes; may ask the docker daemon, and so block for up to two seconds.

    Args:
        chosen: a provider, or ``docker``, ``podman`` (the same, over docker's API) or ``local``. None: the environment
            variable ``NIGHTJAR_SANDBOX``; without it docker where a daemon answers, and local sandboxes otherwise.
        max_workers: threads for calls to a docker daemon.

    Example:
        >>> choose_provider("local").name
        'local'
    """
    if isinstance(chosen, SandboxProvider):
        return chosen
    name = check_name(chosen or os.environ.get(VARIABLE)) or ("docker" if _has_docker() else "local")
    if name == "local":
        return LocalProvider()
    return DockerProvider(max_workers=max_workers)


def check_name(name: str | None) -> str | None:
    """Returns the name of a provider, or None, as it is; ``ConfigError`` where there is no such kind."""
    if name and name not in _NAMES:
        raise ConfigError(f"Unknown sandbox provider {name!r}. Choose one of: {', '.join(_NAMES)}")
    return name


def _has_docker() -> bool:
    return ("DOCKER_HOST" in os.environ or _USUAL_SOCKET.exists()) and DockerProvider.is_available()
