"""The container of an agent's task: the image's own user, a writable file system, and a network if the task has one.

``containers.py`` has the stricter containers for code that a model writes. Here, the agent works as the task says,
often as root, so the container is the boundary: it has limits on memory, CPU, processes and the size of files.
"""

from __future__ import annotations

import asyncio
import functools
import io
import itertools
import logging
import resource
import tarfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightjar.errors import SandboxError
from nightjar.sandboxes.containers import ContainerSandbox, DockerProvider
from nightjar.sandboxes.engine import docker_sdk
from nightjar.sandboxes.ownership import LABEL, owner_labels
from nightjar.sandboxes.processes import ContainerProcess
from nightjar.sandboxes.request import SandboxCreationError

logger = logging.getLogger(__name__)

_COMMAND = "NIGHTJAR_COMMAND"
_KILL_SECONDS = 20.0
_ENTRYPOINT_SECONDS = 0.5
_HIGHEST = 32_768
_REMOVAL_WAITS = (0.5, 2.0, 5.0)
_NETWORK = f"{LABEL}-internal"
_WAIT = "while :; do sleep 3600 & wait $!; done"
# Kills the processes whose first environment has the words, until none is left.
_KILL_ALL_WITH = """
for round in 1 2 3 4 5 6 7 8 9 10; do
    pids=$(grep -ls -e "$1" /proc/[0-9]*/environ | tr -cd '0-9\\n' | grep -v -x -e 1 -e $$)
    [ -n "$pids" ] || break
    kill -KILL $pids
done
"""


@dataclass(frozen=True)
class ContainerSpec:
    """A container. None means no limit, or root as ``user``. ``needs_host``: programs inside ask this machine.

    ``has_entrypoint``: the image's entrypoint starts the container, as it may start services.
    """

    image: str
    name: str = "task"
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    user: str | None = None
    has_entrypoint: bool = False
    cpus: float | None = 1
    memory_mb: int | None = 2048
    storage_mb: int | None = 10_240
    gpus: int = 0
    network: str = "public"
    needs_host: bool = False
    max_processes: int = 1024
    labels: Mapping[str, str] = field(default_factory=dict)


class TaskContainer(ContainerSandbox):
    """A container for one rollout. Commands run as ``user``, which may change; None means the user of ``spec``."""

    def __init__(self, spec: ContainerSpec, provider: DockerProvider) -> None:
        super().__init__(spec.name, provider)
        self.spec = spec
        self.workspace = spec.working_dir or "/"
        self.user: str | None = None
        self.host_address = ""
        self._numbers = itertools.count(1)

    async def start(self) -> None:
        await self.provider.restarts.wait()
        try:
            await self.provider.run(self._start)
        except BaseException as error:
            await self.close()
            if isinstance(error, SandboxError) or not isinstance(error, Exception):
                raise
            raise SandboxCreationError(f"Container {self.id!r} did not start: {error}") from error
        if self._container is not None and self.spec.storage_mb:
            self.provider.disk_watch.add(self._container, self.spec.storage_mb, self._fail)

    async def end_processes(self) -> None:
        """Restarts the container, because processes of root cannot be ended safely from inside. Files stay."""
        try:
            await self.provider.run(self._restart)
        except Exception as error:
            raise SandboxError(f"The processes of container {self.id!r} cannot be ended: {error}") from error

    async def close(self) -> None:
        self._is_closed = True
        if (container := self._let_go()) is not None:
            self.provider.disk_watch.remove(container)
            await asyncio.shield(self._remove_patiently(container))

    def _fail(self, reason: str) -> None:
        self._failure = reason

    async def _remove_patiently(self, container: str) -> None:
        """Removes the container, also if the engine restarts. The watcher of this process removes it if this fails."""
        try:
            await self.provider.run(self._remove, container)
        except Exception:  # noqa: BLE001 - the second attempt logs it
            await self.provider.restarts.wait()
            try:
                await self.provider.run(self._remove, container)
            except Exception as error:  # noqa: BLE001 - the rollout is over, and has its result
                logger.warning(
                    "The container %s could not be removed now, and is removed after this process: %s", self.id, error
                )

    async def kill(self, words: str) -> None:
        """Kills the processes whose first environment contains ``words``."""
        if self._container is not None:
            with suppress(Exception):
                await asyncio.wait_for(self.provider.run(self._as_root, _KILL_ALL_WITH, words), _KILL_SECONDS)

    async def copy_in(self, folder: Path, target: str) -> None:
        """Copies the files of a folder of this machine into ``target``."""
        content = await asyncio.to_thread(_packed, folder, target)
        try:
            await self.provider.run(self.provider.api.put_archive, self._container, "/", content)
        except Exception as error:
            raise SandboxError(f"Container {self.id!r} cannot take {folder.name!r}: {error}") from error

    async def remove(self, paths: Sequence[str]) -> None:
        """Removes files and folders, whoever owns them."""
        await self.provider.run(self._as_root, 'rm -rf -- "$@"', *paths)

    async def make_folders(self, paths: Sequence[str]) -> None:
        """Makes folders that every user of the container may write to, also if the image has no programs."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path in paths:
                found = tarfile.TarInfo(path.strip("/"))
                found.type, found.mode, found.mtime = tarfile.DIRTYPE, 0o777, int(time.time())
                tar.addfile(found)
        await self.provider.run(self.provider.api.put_archive, self._container, "/", packed.getvalue())

    async def unpack(self, archive: bytes) -> None:
        """Unpacks a tar archive at /. Folders that are missing are made."""
        await self.provider.run(self.provider.api.put_archive, self._container, "/", archive)

    async def copy_out(self, path: str, max_bytes: int) -> bytes:
        """Returns a file or folder as a tar archive. Raises ``FileNotFoundError``, or ``SandboxError`` if too large."""
        try:
            return await self.provider.run(self._archive, path, max_bytes)
        except docker_sdk().errors.NotFound:
            raise FileNotFoundError(f"Container {self.id!r} has no {path!r}") from None

    def _start(self) -> None:
        self.provider.watch()
        self.provider.open_containers.add(self.id)
        api, spec, waiting = self.provider.api, self.spec, ["/bin/sh", "-c", _WAIT]
        created = api.create_container(
            spec.image,
            **(
                {"command": waiting, "user": spec.user}
                if spec.has_entrypoint
                else {"entrypoint": waiting, "user": "0:0"}
            ),
            name=self.id,
            working_dir=spec.working_dir,
            environment=dict(spec.env),
            labels={LABEL: "task", **owner_labels(), **spec.labels},
            host_config=api.create_host_config(**self._limits()),
        )
        container = self._start_created(created)
        self._check_entrypoint(container)
        if spec.needs_host:
            self.host_address = _gateway(api.inspect_container(container))

    def _limits(self) -> dict[str, Any]:
        types, spec = docker_sdk().types, self.spec
        limits: dict[str, Any] = {
            "pids_limit": spec.max_processes,
            "init": True,
            "network_mode": self._network(),
            "ulimits": [types.Ulimit(name=name, soft=most, hard=most) for name, most in _machine_limits().items()],
        }
        if spec.cpus:
            limits["nano_cpus"] = int(spec.cpus * 1e9)
        if spec.memory_mb:
            limits["mem_limit"] = limits["memswap_limit"] = spec.memory_mb * 2**20
        if spec.storage_mb:
            most = spec.storage_mb * 2**20
            limits["ulimits"].append(types.Ulimit(name="fsize", soft=most, hard=most))
        if spec.gpus:
            limits["device_requests"] = [types.DeviceRequest(count=spec.gpus, capabilities=[["gpu"]])]
        return limits

    def _network(self) -> str:
        if self.spec.network == "public":
            return "bridge"
        if not self.spec.needs_host:
            return "none"
        api = self.provider.api
        if not api.networks(names=[_NETWORK]):
            with suppress(docker_sdk().errors.APIError):  # another process has just made it
                api.create_network(_NETWORK, driver="bridge", internal=True, labels={LABEL: "network"})
        return _NETWORK

    def _exec(self, argv: list[str], folder: str, variables: dict[str, str]) -> ContainerProcess:
        api, number = self.provider.api, f"{_COMMAND}={self.id}-{next(self._numbers)}-"
        name, _, value = number.partition("=")
        created = api.exec_create(
            self._container, argv, stdin=True, environment={**variables, name: value}, workdir=folder,
            user=self.user or self.spec.user or "",
        )  # fmt: skip
        connection = api.exec_start(created["Id"], socket=True)
        return ContainerProcess(connection, self.provider, created["Id"], functools.partial(self.kill, number))

    def _restart(self) -> None:
        self.provider.api.restart(self._container, timeout=0)
        self._check_entrypoint(str(self._container))
        if self.spec.needs_host:
            self.host_address = _gateway(self.provider.api.inspect_container(self._container))

    def _check_entrypoint(self, container: str) -> None:
        """Waits briefly, as an entrypoint that ends does so at once, and then takes the container with it."""
        if not self.spec.has_entrypoint:
            return
        time.sleep(_ENTRYPOINT_SECONDS)
        state = self.provider.api.inspect_container(container)["State"]
        if not state["Running"]:
            said = self.provider.api.logs(container, tail=5).decode("utf-8", "replace").strip()
            raise SandboxCreationError(f"The image's entrypoint ended with exit code {state['ExitCode']}: {said}")

    def _archive(self, path: str, max_bytes: int) -> bytes:
        content = bytearray()
        chunks, _ = self.provider.api.get_archive(self._container, path)
        for chunk in chunks:
            content += chunk
            if len(content) > max_bytes:
                raise SandboxError(f"{path!r} in container {self.id!r} is larger than {max_bytes} bytes")
        return bytes(content)

    def _remove(self, container: str) -> None:
        """Removes the container, again if the engine needs more than its own time to end many processes."""
        errors = docker_sdk().errors
        for wait in (*_REMOVAL_WAITS, None):
            try:
                self.provider.api.remove_container(container, force=True, v=True)
            except errors.NotFound:
                break
            except errors.APIError as error:
                if "already in progress" in str(error):
                    break
                if wait is None:
                    raise
                time.sleep(wait)
            else:
                break
        self.provider.open_containers.discard(self.id)


def _machine_limits() -> dict[str, int]:
    """Returns ulimits that an engine without special rights may set. ``pids_limit`` limits processes more strictly."""
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    own = {name: resource.getrlimit(kind)[1] for name, kind in kinds.items()}
    return {"core": 0} | {name: min(most, _HIGHEST) if most >= 0 else _HIGHEST for name, most in own.items()}


def _packed(folder: Path, target: str) -> bytes:
    def owned_by_root(found: tarfile.TarInfo) -> tarfile.TarInfo:
        found.uid = found.gid = 0
        found.uname = found.gname = ""
        return found

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, arcname=target.strip("/"), filter=owned_by_root)
    return packed.getvalue()


def _gateway(found: Mapping[str, Any]) -> str:
    networks = found["NetworkSettings"].get("Networks") or {}
    gateways = [each.get("Gateway") for each in networks.values()]
    return next((gateway for gateway in [found["NetworkSettings"].get("Gateway"), *gateways] if gateway), "")
