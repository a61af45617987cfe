"""Sandboxes in containers: docker, or podman behind docker's API (``DOCKER_HOST=unix:///run/podman/podman.sock``).

A container has no network and no capabilities. It has its own ordinary user (limits on processes are per user), a
read-only image, and ``/workspace`` and ``/tmp`` in memory with a size limit. Each command runs with a group id that it
cannot change, so all processes that it started can be killed with it. A container ends by itself after
``timeout_minutes``, even if this process is killed. All containers have the label ``nightjar``. The docker SDK blocks,
so its calls run in threads.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import io
import itertools
import logging
import os
import random
import shlex
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from nightjar.errors import SandboxError
from nightjar.sandboxes.disk_watch import DiskWatch
from nightjar.sandboxes.engine import EngineRestarts, connect, docker_sdk
from nightjar.sandboxes.ownership import IMAGE_LABELS, LABEL, owner_labels, release_watcher, remove_left, use_watcher
from nightjar.sandboxes.processes import ContainerProcess
from nightjar.sandboxes.request import (
    CreateSandboxRequest,
    SandboxCreationError,
    check_sandbox_access,
)
from nightjar.sandboxes.sandbox import Command, Sandbox, SandboxProvider

if TYPE_CHECKING:
    import docker

T = TypeVar("T")
logger = logging.getLogger(__name__)

_IDS = range(10_000, 60_000)
_KILL_SECONDS = 5.0
_SHARE_OF_TMP = 0.2
_OPEN_FILES = 1024
_SPARE_PROCESSES = 32
_INSTALL_TIMEOUT_SECONDS = 900
_ROOT, _NOBODY = "0:0", "65534:65534"
_OPEN = 'chmod 1777 "$@"'
# Stops all processes of a user or group until no new one appears, then kills them, so that none can escape by forking.
_KILL_ALL_OF = """
members() { grep -ls "^$1:[[:space:]]*$2[[:space:]]" /proc/[0-9]*/status | tr -cd '0-9\\n'; }
for round in 1 2 3 4 5 6 7 8 9 10; do
    pids=$(members "$@"); [ "$pids" = "$before" ] && break
    kill -STOP $pids; before=$pids
done
for round in 1 2 3 4 5; do pids=$(members "$@"); [ -n "$pids" ] || break; kill -KILL $pids; done
"""


class ContainerSandbox(Sandbox):
    """A container. A subclass creates the container, runs commands in it and removes it."""

    def __init__(self, name: str, provider: DockerProvider) -> None:
        check_sandbox_access()
        self.id = f"{LABEL}-{name}-{uuid.uuid4().hex[:12]}"
        self.provider = provider
        self._container: str | None = None
        self._is_closed = False
        self._failure = ""

    async def spawn(
        self,
        command: Command,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        max_output_bytes: int | None = None,  # noqa: ARG002 - the daemon knows no limit; the reader has one
    ) -> ContainerProcess:
        if self._container is None:
            raise SandboxError(f"Container {self.id!r} is not running")
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        folder = os.path.join(self.workspace, working_dir or "")  # noqa: PTH118 - a path inside
        try:
            return await self.provider.run(self._exec, argv, folder, dict(env or {}))
        except Exception as error:
            raise SandboxError(f"Container {self.id!r} cannot run commands: {self._failure or error}") from error

    def close_now(self) -> None:
        self._is_closed = True
        if (container := self._let_go()) is not None:
            self._remove(container)

    def _let_go(self) -> str | None:
        container, self._container = self._container, None
        return container

    def _start_created(self, created: Mapping[str, Any]) -> str:
        self._container = container = str(created["Id"])
        if self._is_closed:  # closed while the daemon was busy; calls of the daemon cannot be cancelled
            self._remove(container)
            raise SandboxCreationError(f"Container {self.id!r} was closed before it had started")
        self.provider.api.start(container)
        return container

    def _as_root(self, script: str, *arguments: str) -> None:
        """Runs a script as the container's root, which has the capability to kill."""
        api = self.provider.api
        created = api.exec_create(self._container, ["/bin/sh", "-c", script, "sh", *arguments], user=_ROOT)
        api.exec_start(created["Id"])

    @abstractmethod
    def _exec(self, argv: list[str], folder: str, variables: dict[str, str]) -> ContainerProcess: ...

    @abstractmethod
    def _remove(self, container: str) -> None: ...


class DockerSandbox(ContainerSandbox):
    def __init__(self, request: CreateSandboxRequest, provider: DockerProvider) -> None:
        super().__init__(request.name, provider)
        self._request = request
        self._user = random.choice(_IDS)  # noqa: S311 - not a secret
        self._groups = itertools.cycle(_IDS)

    async def start(self) -> None:
        """Creates and starts the container. The first time, pulls the image and installs packages into the image."""
        await self.provider.restarts.wait()
        try:
            await self.provider.run(self._start)
        except SandboxError:
            raise
        except Exception as error:
            await self._remove_container()
            raise SandboxCreationError(f"Container {self.id!r} did not start: {error}") from error
        await self._run_start_command()

    async def end_processes(self) -> None:
        try:
            await self.provider.run(self._as_root, _KILL_ALL_OF, "Uid", str(self._user))
        except Exception as error:
            raise SandboxError(f"The processes of container {self.id!r} cannot be ended: {error}") from error
        await self._run_start_command()

    async def close(self) -> None:
        self._is_closed = True
        await self._remove_container()

    async def _run_start_command(self) -> None:
        if command := self._request.background_command:
            await self.spawn(command)

    async def _kill_group(self, group: int) -> None:
        if self._container is not None:
            with suppress(Exception):
                await asyncio.wait_for(self.provider.run(self._as_root, _KILL_ALL_OF, "Gid", str(group)), _KILL_SECONDS)

    async def _remove_container(self) -> None:
        if (container := self._let_go()) is not None:
            await asyncio.shield(self.provider.run(self._remove, container))

    def _start(self) -> None:
        self.provider.watch()
        api, request = self.provider.api, self._request
        image = self.provider.image_with_packages(request)
        self.provider.open_containers.add(self.id)
        created = api.create_container(
            image,
            ["/bin/sh", "-c", f"exec sleep {int(request.timeout_minutes * 60)}"],
            name=self.id,
            user=_NOBODY,  # so that no command can end the container
            working_dir=self.workspace,
            labels={LABEL: "sandbox", **owner_labels()} | dict.fromkeys(request.labels, ""),
            host_config=api.create_host_config(**self._limits()),
            network_disabled=True,
        )
        self._start_created(created)
        self._as_root(_OPEN, self.workspace, "/tmp")  # noqa: S108 - inside

    def _limits(self) -> dict[str, Any]:
        types, request = docker_sdk().types, self._request
        tmp_bytes = int(request.storage_bytes * _SHARE_OF_TMP)
        sizes = {self.workspace: request.storage_bytes - tmp_bytes, "/tmp": tmp_bytes}  # noqa: S108
        limits: dict[str, Any] = {
            "network_mode": "none",
            "nano_cpus": int(request.cpu_cores * 1e9),
            "mem_limit": request.memory_bytes,
            "memswap_limit": request.memory_bytes,
            "pids_limit": request.max_processes + _SPARE_PROCESSES,
            "cap_drop": ["ALL"],
            "cap_add": ["KILL"],  # only for root, which runs our own scripts
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "auto_remove": True,
            "init": True,
            "tmpfs": {path: f"size={size},exec" for path, size in sizes.items()},
            "ulimits": [
                types.Ulimit(name=name, soft=most, hard=most)
                for name, most in (("nofile", _OPEN_FILES), ("nproc", request.max_processes), ("core", 0))
            ],
        }
        if request.gpu_count:
            limits["device_requests"] = [types.DeviceRequest(count=request.gpu_count, capabilities=[["gpu"]])]
        return limits

    def _exec(self, argv: list[str], folder: str, variables: dict[str, str]) -> ContainerProcess:
        api, group = self.provider.api, next(self._groups)
        variables = {"HOME": self.workspace, **(self._request.environment_vars or {}), **variables}
        created = api.exec_create(
            self._container, argv, stdin=True, environment=variables, workdir=folder, user=f"{self._user}:{group}"
        )
        connection = api.exec_start(created["Id"], socket=True)
        return ContainerProcess(connection, self.provider, created["Id"], functools.partial(self._kill_group, group))

    def _remove(self, container: str) -> None:
        errors = docker_sdk().errors
        try:
            self.provider.api.remove_container(container, force=True, v=True)
        except errors.APIError as error:
            if not isinstance(error, errors.NotFound) and "already in progress" not in str(error):
                raise
        self.provider.open_containers.discard(self.id)


class DockerProvider(SandboxProvider):
    """Makes containers through the docker SDK. Connects to ``DOCKER_HOST``, unless a client is given.

    Example:
        >>> DockerProvider.is_available() in {True, False}
        True
    """

    name = "docker"

    def __init__(self, max_workers: int = 50, client: docker.DockerClient | None = None) -> None:
        self._threads = ThreadPoolExecutor(max_workers, thread_name_prefix="nightjar-docker")
        self._client = client or connect(timeout_seconds=60)
        self.api: Any = self._client.api
        """The SDK's low-level client."""
        self._images: dict[str, str] = {}
        self._preparing = threading.Lock()
        self._is_watched = False
        self.open_containers: set[str] = set()
        """The names of the containers that may exist."""
        self.disk_watch = DiskWatch(self)
        self.restarts = EngineRestarts(self)

    @staticmethod
    def is_available(timeout_seconds: float = 2) -> bool:
        """Returns whether the docker SDK is installed and a daemon answers in time."""
        try:
            with closing(connect(timeout_seconds)) as client:
                return bool(client.ping())
        except Exception:  # noqa: BLE001 - any error means that docker cannot be used
            return False

    async def run(self, func: Callable[..., T], *args: Any) -> T:
        """Runs a blocking call in a thread, or in this thread while the interpreter shuts down."""
        calling = None
        with suppress(RuntimeError):
            calling = asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(func, *args))
        return func(*args) if calling is None else await calling

    def watch(self) -> None:
        """Removes containers that earlier processes left, and those of this process when it has ended."""
        with self._preparing:
            if not self._is_watched:
                use_watcher()
                self._is_watched = True
                for name in remove_left(self._client):
                    logger.warning("Removed the container %s of a process that has ended", name)

    def new_sandbox(self, request: CreateSandboxRequest) -> DockerSandbox:
        return DockerSandbox(request, self)

    def image_with_packages(self, request: CreateSandboxRequest) -> str:
        """Returns an image with the requested packages. The first time, builds the image, which needs a network."""
        with self._preparing:
            self.pull(request.docker_image)
            if not request.python_packages:
                return request.docker_image
            install = f"python3 -m pip install --no-cache-dir --quiet {shlex.join(request.python_packages)}"
            recipe = f"FROM {request.docker_image}\nRUN {install}\n"
            if recipe not in self._images:
                self._images[recipe] = self._build(recipe)
            return self._images[recipe]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._is_watched and not self.open_containers:  # otherwise the watcher removes them
            self._is_watched = False
            release_watcher()
        self._client.close()

    def pull(self, image: str) -> None:
        """Pulls an image that is not on this machine."""
        errors = docker_sdk().errors
        with suppress(errors.NotFound):
            self._client.images.get(image)
            return
        logger.info("Pulling the image %r", image)
        try:
            self._client.images.pull(image)
        except errors.APIError as error:
            raise SandboxCreationError(f"The image {image!r} cannot be pulled: {error.explanation}") from error

    def _build(self, recipe: str) -> str:
        errors = docker_sdk().errors
        tag = f"{LABEL}-packages:{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
        logger.info("Building the image %r: %s", tag, recipe)
        try:
            self._client.images.build(
                fileobj=io.BytesIO(recipe.encode()),
                tag=tag,
                rm=True,
                timeout=_INSTALL_TIMEOUT_SECONDS,
                labels=IMAGE_LABELS,
            )
        except (errors.BuildError, errors.APIError) as error:
            raise SandboxCreationError(
                f"Packages cannot be installed into an image: {error}. Set docker_image to an image that has them, "
                "and pip_install_packages=''."
            ) from error
        return tag
