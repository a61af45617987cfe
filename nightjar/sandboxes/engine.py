"""The container engine: the docker SDK, connections, and the wait for an engine that restarts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nightjar.sandboxes.request import SandboxRefusedError

if TYPE_CHECKING:
    import docker

T = TypeVar("T")
_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 1.0
logger = logging.getLogger(__name__)


class Engine(Protocol):
    """The engine's low-level client, which blocks, and a way to call it in a thread."""

    api: Any

    async def run(self, func: Callable[..., T], *args: Any) -> T: ...


def docker_sdk() -> Any:
    """Returns the docker SDK. Raises ``SandboxRefusedError`` if it is not installed."""
    try:
        import docker
        import docker.errors
        import docker.types
    except ImportError as error:
        raise SandboxRefusedError(
            "Containers need the docker SDK. Install it: pip install 'nightjar-evals[docker]'"
        ) from error
    return docker


def connect(timeout_seconds: float) -> docker.DockerClient:
    """Returns a connection to the daemon. Raises ``SandboxRefusedError`` if none answers."""
    sdk = docker_sdk()
    try:
        return sdk.from_env(timeout=timeout_seconds)
    except sdk.errors.DockerException as error:
        raise SandboxRefusedError(
            f"No docker daemon answers: {error}. Start docker, set DOCKER_HOST, or use sandbox_provider='local'."
        ) from error


class EngineRestarts:
    """Waits until the engine has restarted, so that a restart fails only rollouts in progress and no later ones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._has_given_up = False

    async def wait(self) -> None:
        """Returns when the engine answers, or after half a minute, when the next call will raise its error.

        After a wait in vain, further calls do not wait until the engine answers again.
        """
        deadline, is_told = time.monotonic() + _PATIENCE_SECONDS, False
        while (problem := await self._problem()) is not None:
            if self._has_given_up or time.monotonic() > deadline:
                self._has_given_up = True
                return
            if not is_told:
                logger.warning("The container engine does not answer; waiting for it: %s", problem)
                is_told = True
            await asyncio.sleep(_POLL_SECONDS)
        self._has_given_up = False

    async def _problem(self) -> Exception | None:
        try:
            await self._engine.run(self._engine.api.ping)
        except Exception as error:  # noqa: BLE001 - the caller's own call raises it again
            return error
        return None
