"""Nightjar's sandboxes for Inspect's ``sandbox()``: local ones, and containers from an image or a Dockerfile."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspect_ai import Task
from inspect_ai._eval.loader import resolve_task_sandbox
from inspect_ai._eval.task.sandbox import sandboxenv_context
from inspect_ai.dataset import Sample
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxEnvironmentSpec,
    sandboxenv,
)
from inspect_ai.util._sandbox.environment import SandboxUserUnsupportedError

from nightjar.core.environment_id import INSPECT
from nightjar.errors import SandboxError
from nightjar.sandboxes import CreateSandboxRequest, Sandbox, choose_provider
from nightjar.sandboxes.images import Images, ImageSource
from nightjar.sandboxes.providers import docker_provider
from nightjar.sandboxes.task_containers import ContainerSpec, TaskContainer

_TYPE = "nightjar"
_LOCAL, _DOCKER = "local", "docker"
_DOCKERFILE = "Dockerfile"
DEFAULT_IMAGE = "aisiuk/inspect-tool-support"
"""Inspect's image for tasks that name none."""
_IS_FOLDER = 'if [ -d "$1" ]; then exit 21; fi'
_FOLDER = 21


@dataclass(frozen=True)
class SandboxPlace:
    """The sandbox of a sample: an image, a folder with a Dockerfile, or neither for a local sandbox."""

    image: str | None = None
    folder: Path | None = None

    @property
    def is_local(self) -> bool:
        return self.image is None and self.folder is None


def place_of(task: Task, sample: Sample, image: str | None) -> SandboxPlace | str | None:
    """Returns the place of a sample's sandbox, None if it has none, or the name of what is not supported.

    ``image`` replaces Inspect's image for tasks that name none.
    """
    asked = task.sandbox or sample.sandbox
    if asked is None:
        return None
    if asked.type not in {_LOCAL, _DOCKER}:
        return f"sandboxes of the kind {asked.type!r}"
    asked = resolve_task_sandbox(task, None) or asked
    own = sample.sandbox
    config = own.config if own is not None and own.type == asked.type and own.config is not None else asked.config
    if asked.type == _LOCAL:
        return SandboxPlace()
    if config is None:
        return SandboxPlace(image=image or DEFAULT_IMAGE)
    if isinstance(config, str) and Path(config).name == _DOCKERFILE:
        return SandboxPlace(folder=Path(config).parent.resolve())
    return "sandboxes with a compose file, or with several containers"


class SandboxMaker:
    """Makes the sandboxes of an environment's rollouts. Images are built or pulled once."""

    def __init__(self) -> None:
        self._images: Images | None = None

    def context(self, task_name: str, place: SandboxPlace, sample: Sample) -> AbstractAsyncContextManager[None]:
        """Returns the context in which ``sandbox()`` is a new sandbox with the files of the sample."""
        spec = SandboxEnvironmentSpec(_TYPE, SandboxConfig(self, place))
        bare = sample.model_copy(update={"sandbox": None})
        context: AbstractAsyncContextManager[None] = sandboxenv_context(task_name, spec, None, True, bare)
        return context

    async def started(self, place: SandboxPlace) -> Sandbox:
        """Starts a sandbox."""
        sandbox = await self._new(place)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _new(self, place: SandboxPlace) -> Sandbox:
        if place.is_local:
            return choose_provider(_LOCAL).new_sandbox(CreateSandboxRequest(name="inspect"))
        if self._images is None:
            provider = await asyncio.to_thread(docker_provider)
            self._images = self._images or Images(provider)
        image = await self._images.prepared(ImageSource(place.image, place.folder))
        spec = ContainerSpec(
            image=image.name, name="inspect", working_dir=image.working_dir, user=image.user or None, network="none"
        )
        return TaskContainer(spec, self._images.provider)

    async def close(self) -> None:
        """Releases the container engine."""
        images, self._images = self._images, None
        if images is not None:
            await images.cancel()
            images.provider.close()


class SandboxConfig:
    """The configuration of Inspect's sandbox type ``nightjar``: who makes the sandbox, and of which kind."""

    def __init__(self, maker: SandboxMaker, place: SandboxPlace) -> None:
        self.maker = maker
        self.place = place


@sandboxenv(name=_TYPE)
class NightjarSandbox(SandboxEnvironment):  # type: ignore[misc]
    """A sandbox of Nightjar with the interface of Inspect."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self._sandbox = sandbox

    @classmethod
    async def sample_init(
        cls,
        task_name: str,  # noqa: ARG003 - Inspect's interface
        config: Any,
        metadata: Mapping[str, Any],  # noqa: ARG003
    ) -> dict[str, SandboxEnvironment]:
        """Starts the sandbox of a sample."""
        return {"default": cls(await config.maker.started(config.place))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,  # noqa: ARG003 - Inspect's interface
        config: Any,  # noqa: ARG003
        environments: Mapping[str, SandboxEnvironment],
        interrupted: bool,  # noqa: ARG003
    ) -> None:
        """Removes the sandbox of a sample."""
        for environment in environments.values():
            await environment.as_type(NightjarSandbox)._sandbox.close()  # noqa: SLF001 - its own

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - Inspect passes it by this name
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109
        timeout_retry: bool = True,  # noqa: ARG002
        concurrency: bool = True,  # noqa: ARG002
    ) -> ExecResult[str]:
        """Runs a command. Raises ``TimeoutError`` after ``timeout`` seconds."""
        stdin = input.encode() if isinstance(input, str) else input
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        done = await self._as(user).exec(cmd, timeout, cwd, env, stdin, most)
        if done.is_timed_out:
            raise TimeoutError(f"Command timed out after {timeout} seconds")
        if done.is_truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, done.stdout)
        code = done.exit_code or 0
        return ExecResult(code == 0, code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file."""
        await self._refuse_folder(file)
        try:
            await self._sandbox.upload(contents.encode() if isinstance(contents, str) else contents, file)
        except SandboxError as error:
            raise (PermissionError(str(error)) if "ermission denied" in str(error) else error) from error

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Returns the content of a file."""
        await self._refuse_folder(file)
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            content = await self._sandbox.download(file, most)
        except SandboxError as error:
            if "larger than" in str(error):
                limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
                raise OutputLimitExceededError(limit, None) from error
            raise (PermissionError(str(error)) if "ermission denied" in str(error) else error) from error
        return content.decode("utf-8") if text else content

    async def _refuse_folder(self, file: str) -> None:
        done = await self._sandbox.exec(["/bin/sh", "-c", _IS_FOLDER, "sh", file])
        if done.exit_code == _FOLDER:
            raise IsADirectoryError(file)

    def _as(self, user: str | None) -> Sandbox:
        if user is None:
            return self._sandbox
        if not isinstance(self._sandbox, TaskContainer):
            if user in {str(os.geteuid()), os.environ.get("USER")}:
                return self._sandbox
            raise SandboxUserUnsupportedError(f"A local sandbox of {INSPECT} has one user, not {user!r}")
        other = copy.copy(self._sandbox)
        other.user = user
        return other
