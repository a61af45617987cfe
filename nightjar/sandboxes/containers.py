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
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from nightjar.errors import SandboxError
from nightjar.sandboxes.disk_watch import DiskWatch
from nightjar.sandboxes.engine import EngineRestarts, connect, docker_sdk
from nightjar.sandboxes.ownership import IMAGE_LABELS, LABEL, owner_labels, release_watcher, remove_left, use_watcher
from nightjar.sandboxes.processes import KILLED, FrameReader
from nightjar.sandboxes.request import (
    CreateSandboxRequest,
    SandboxCreationError,
    check_sandbox_access,
)
from nightjar.sandboxes.sandbox import Command, Output, Sandbox, SandboxProcess, SandboxProvider, Stream

if TYPE_CHECKING:
    import docker

T = TypeVar("T")
logger = logging.getLogger(__name__)

_IDS = range(10_000, 60_000)
_KILL_SECONDS = 5.0
_END_SECONDS = 5.0
_POLL_SECONDS = 0.01
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


class DockerSandbox(Sandbox):
    def __init__(self, request: CreateSandboxRequest, provider: DockerProvider) -> None:
        self.id = f"{LABEL}-{request.name}-{uuid.uuid4().hex[:12]}"
        self._request = request
        self.provider = provider
        self._container: str | None = None
        self._user = random.choice(_IDS)  # noqa: S311 - not a secret
        self._groups = itertools.cycle(_IDS)
        self._is_closed = False

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
        variables = {"HOME": self.workspace, **(self._request.environment_vars or {}), **(env or {})}
        folder = os.path.join(self.workspace, working_dir or "")  # noqa: PTH118 - a path inside
        try:
            return await self.provider.run(self._exec, argv, folder, variables)
        except Exception as error:
            raise SandboxError(f"Container {self.id!r} cannot run commands: {error}") from error

    async def end_processes(self) -> None:
        try:
            await self.provider.run(self._as_root, _KILL_ALL_OF, "Uid", str(self._user))
        except Exception as error:
            raise SandboxError(f"The processes of container {self.id!r} cannot be ended: {error}") from error
        await self._run_start_command()

    async def close(self) -> None:
        self._is_closed = True
        await self._remove_container()

    def close_now(self) -> None:
        self._is_closed = True
        container, self._container = self._container, None
        if container is not None:
            self._remove(container)

    async def _run_start_command(self) -> None:
        if command := self._request.background_command:
            await self.spawn(command)

    async def _kill_group(self, group: int) -> None:
        if self._container is not None:
            with suppress(Exception):
                await asyncio.wait_for(self.provider.run(self._as_root, _KILL_ALL_OF, "Gid", str(group)), _KILL_SECONDS)

    async def _remove_container(self) -> None:
        container, self._container = self._container, None
        if container is not None:
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
        self._container = container = str(created["Id"])
        if self._is_closed:  # closed while the daemon was busy; calls of the daemon cannot be cancelled
            self._remove(container)
            raise SandboxCreationError(f"Container {self.id!r} was closed before it had started")
        api.start(container)
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
        api = self.provider.api
        group = next(self._groups)
        created = api.exec_create(
            self._container, argv, stdin=True, environment=variables, workdir=folder, user=f"{self._user}:{group}"
        )
        connection = api.exec_start(created["Id"], socket=True)
        return ContainerProcess(connection, self.provider, created["Id"], functools.partial(self._kill_group, group))

    def _as_root(self, script: str, *arguments: str) -> None:
        """Runs a script as the container's root, which has the capability to kill."""
        api = self.provider.api
        created = api.exec_create(self._container, ["/bin/sh", "-c", script, "sh", *arguments], user=_ROOT)
        api.exec_start(created["Id"])

    def _remove(self, container: str) -> None:
        errors = docker_sdk().errors
        try:
            self.provider.api.remove_container(container, force=True, v=True)
        except errors.APIError as error:
            if not isinstance(error, errors.NotFound) and "already in progress" not in str(error):
                raise
        self.provider.open_containers.discard(self.id)


class ContainerProcess(SandboxProcess):
    """A command in a container. ``connection`` is the SDK's result of ``exec_start(..., socket=True)``.

    ``kill`` kills the command with all processes that it started.
    """

    def __init__(
        self, connection: Any, provider: DockerProvider, exec_id: str, kill: Callable[[], Awaitable[None]]
    ) -> None:
        self._wrapper = connection
        self._connection: socket.socket = getattr(connection, "_sock", connection)
        self._provider = provider
        self._exec_id = exec_id
        self._kill = kill
        self._is_plain = not isinstance(self._connection, ssl.SSLSocket) and isinstance(self._connection, socket.socket)
        if self._is_plain:
            self._connection.setblocking(False)
        self._early = _read_with_header(connection) if self._is_plain else b""
        self._frames = FrameReader(self._receive, set(Stream))
        self._has_ended = False

    async def read(self) -> Output | None:
        piece = None if self._has_ended else await self._frames.read()
        self._has_ended = piece is None
        return None if piece is None else Output(Stream(piece[0]), piece[1])

    async def write(self, data: bytes) -> None:
        with suppress(ConnectionError):
            if self._is_plain:
                await asyncio.get_running_loop().sock_sendall(self._connection, data)
            else:
                await self._provider.run(self._connection.sendall, data)

    async def close_input(self) -> None:
        if self._is_plain:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    async def exit_code(self) -> int:
        """Returns the exit code. The daemon knows the exit code shortly after the output has ended."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            try:
                found = await self._provider.run(self._provider.api.exec_inspect, self._exec_id)
            except Exception as error:
                raise SandboxError(f"A container has ended: {error}") from error
            if not found["Running"]:
                return KILLED if found["ExitCode"] is None else int(found["ExitCode"])
            await asyncio.sleep(_POLL_SECONDS)
        return KILLED

    async def close(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            await self._kill()
        self._connection.close()
        self._wrapper.close()

    async def leave(self) -> None:
        """Closes the process's input and the connection to it. The processes that it started go on."""
        await self.close_input()
        self._has_ended = True
        await self.close()

    async def _receive(self, size: int) -> bytes:
        if self._early:
            early, self._early = self._early[:size], self._early[size:]
            return early
        with suppress(ConnectionError, ValueError):
            if self._is_plain:
                return await asyncio.get_running_loop().sock_recv(self._connection, size)
            return bytes(await self._provider.run(self._connection.recv, size))
        return b""


def _read_with_header(connection: Any) -> bytes:
    """Returns output that arrived in one packet with the daemon's response. The SDK leaves this output in a buffer."""
    try:
        found = connection._response.raw._fp.fp.read1()  # noqa: SLF001 - the SDK has no other way to it
    except (AttributeError, OSError):
        return b""
    return bytes(found or b"")


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
        check_sandbox_access()
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
