"""Starts the servers of an OpenEnv project, one sandbox each, and knows those that run."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nightjar.calling import backoff_seconds
from nightjar.envs.openenv.answers import ServerRefusedError, StepResult
from nightjar.envs.openenv.project import BuildManifest, needed_packages, packed
from nightjar.envs.openenv.server import OpenEnvServer, ServerLimits, ServerUnreachableError
from nightjar.sandboxes import CreateSandboxRequest, SandboxCreationError, SandboxProvider, SandboxRefusedError

logger = logging.getLogger(__name__)

_RESETS = 5
_RESET_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class StartRetries:
    """How often to try to start a sandbox, and how long to wait in between.

    Attributes:
        attempts: the first included.
        base_seconds: before the second attempt.
        factor: by which each further wait is longer.
        max_seconds: the longest wait.
        jitter_seconds: what chance adds to a wait at the most.

    Example:
        >>> retries = StartRetries(jitter_seconds=0)
        >>> [retries.pause_seconds(attempt) for attempt in (1, 2, 3, 9)]
        [0.5, 1.0, 2.0, 30.0]
    """

    attempts: int = 5
    base_seconds: float = 0.5
    factor: float = 2.0
    max_seconds: float = 30.0
    jitter_seconds: float = 1e-3

    def pause_seconds(self, attempt: int) -> float:
        """Returns how long to wait after so many attempts."""
        return backoff_seconds(
            attempt,
            self.base_seconds,
            max_seconds=self.max_seconds,
            jitter_seconds=self.jitter_seconds,
            factor=self.factor,
        )


class OpenEnvServers:
    """The servers of a project.

    Args:
        folder: the project's.
        manifest: says how a server starts.
        retries: how often to try to start its sandbox.
    """

    def __init__(self, folder: Path, manifest: BuildManifest, retries: StartRetries) -> None:
        self._folder = folder
        self._manifest = manifest
        self._retries = retries
        self._running: dict[str, OpenEnvServer] = {}

    async def start(self, provider: SandboxProvider, limits: ServerLimits) -> OpenEnvServer:
        """Starts a server; tries again where the sandbox does not start.

        Raises:
            SandboxError: it does not start, or is not healthy in time.
        """
        attempt = 1
        while True:
            server = self._new_server(provider, limits)
            self._running[server.sandbox.id] = server
            try:
                await server.start()
            except BaseException as error:
                await self.close(server)
                if attempt >= self._retries.attempts or not _may_heal(error):
                    raise
                logger.warning("A sandbox did not start, attempt %s of %s: %s", attempt, self._retries.attempts, error)
            else:
                return server
            await asyncio.sleep(self._retries.pause_seconds(attempt))
            attempt += 1

    async def close(self, server: OpenEnvServer) -> None:
        """Ends a server and its sandbox."""
        try:
            await server.close()
        finally:
            self._running.pop(server.sandbox.id, None)

    async def close_all(self) -> None:
        """Ends the servers that are left."""
        for server in list(self._running.values()):
            await self.close(server)

    @cached_property
    def _files(self) -> bytes:
        return packed(self._folder)

    def _new_server(self, provider: SandboxProvider, limits: ServerLimits) -> OpenEnvServer:
        is_local = provider.name == "local"
        request = CreateSandboxRequest(
            name="openenv-env",
            docker_image=self._manifest.image,
            start_command=None,
            cpu_cores=2,
            memory_gb=4,
            disk_size_gb=10,
            timeout_minutes=60,
            environment_vars={"ENABLE_WEB_INTERFACE": "false"},
            python_packages=needed_packages(self._folder) if is_local else [],
            are_packages_optional=True,
        )
        files = self._files if is_local else None
        return OpenEnvServer(provider.new_sandbox(request), self._manifest, files, limits)


async def reset_patiently(server: OpenEnvServer, seed: int) -> StepResult:
    """Starts an episode; where that fails, tries again with a new session, five times in all.

    Raises:
        OpenEnvError: the server refused the last time too.
        SandboxError: it did not answer.
    """
    for attempt in range(1, _RESETS):
        try:
            return await server.reset(seed)
        except (ServerRefusedError, ServerUnreachableError) as error:
            logger.warning("Reset with seed %s failed, attempt %s of %s: %s", seed, attempt, _RESETS, error)
            await asyncio.sleep(backoff_seconds(attempt, _RESET_PAUSE_SECONDS, max_seconds=_LONGEST_PAUSE_SECONDS))
            await server.connect()
    return await server.reset(seed)


def _may_heal(error: BaseException) -> bool:
    return isinstance(error, SandboxCreationError) and not isinstance(error, SandboxRefusedError)
