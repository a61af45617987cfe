"""Builds or pulls the images of tasks: each image once, several at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightjar.core.folder_hash import hash_of_folder
from nightjar.sandboxes.containers import DockerProvider
from nightjar.sandboxes.engine import docker_sdk
from nightjar.sandboxes.ownership import IMAGE_LABELS, LABEL
from nightjar.sandboxes.request import SandboxCreationError, SandboxRefusedError

_AT_ONCE = 2
_SHOWN_LINES = 15
logger = logging.getLogger(__name__)


class ImageError(SandboxRefusedError):
    """An image cannot be built or pulled. A retry would not help."""


@dataclass(frozen=True)
class ImageSource:
    """An image to pull (``name``), or to build from the Dockerfile in ``folder``."""

    name: str | None = None
    folder: Path | None = None
    build_seconds: float = 600.0

    def __str__(self) -> str:
        return self.name or str(self.folder)


@dataclass(frozen=True)
class Image:
    """An image on this machine. ``digest`` identifies its content; an empty ``user`` is root."""

    name: str
    digest: str
    working_dir: str
    user: str = ""
    has_entrypoint: bool = False
    seconds: float = 0.0


@dataclass
class Images:
    """The images of a run. Concurrent requests for one image share its preparation, and its error."""

    provider: DockerProvider
    _tasks: dict[ImageSource, asyncio.Task[Image]] = field(default_factory=dict)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _ready: int = 0

    async def prepared(self, source: ImageSource) -> Image:
        """Returns an image, which the first request builds or pulls. Raises ``ImageError`` if this is impossible."""
        if source not in self._tasks:
            self._tasks[source] = asyncio.create_task(self._prepare(source))
        return await asyncio.shield(self._tasks[source])

    async def cancel(self) -> None:
        """Stops waiting for images that are not ready."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _prepare(self, source: ImageSource) -> Image:
        async with self._places:
            await self.provider.restarts.wait()
            started = time.monotonic()
            image = await self.provider.run(_prepare, self.provider, source, started)
        self._ready += 1
        logger.info("Image %d of %d is ready after %.1f s: %s", self._ready, len(self._tasks), image.seconds, source)
        return image


def _prepare(provider: DockerProvider, source: ImageSource, started: float) -> Image:
    name = _pull(provider, source.name) if source.folder is None else _build(provider, source.folder, source)
    found = provider.api.inspect_image(name)
    digests = found.get("RepoDigests") or []
    digest = digests[0].rpartition("@")[2] if source.folder is None and digests else found["Id"]
    config = found.get("Config") or {}
    folder, user = config.get("WorkingDir") or "/", config.get("User") or ""
    seconds = time.monotonic() - started
    return Image(name, str(digest), str(folder), str(user), bool(config.get("Entrypoint")), seconds)


def _pull(provider: DockerProvider, name: str | None) -> str:
    assert name is not None
    try:
        provider.pull(name)
    except SandboxCreationError as error:
        raise ImageError(str(error)) from None
    return name


def _build(provider: DockerProvider, folder: Path, source: ImageSource) -> str:
    errors, api = docker_sdk().errors, provider.api
    name = f"localhost/{LABEL}-task:{hash_of_folder(folder)[:20]}"
    with suppress(errors.ImageNotFound):
        api.inspect_image(name)
        return name
    logger.info("Building the image of %r", folder.parent.name)
    try:
        steps = api.build(
            path=str(folder), tag=name, rm=True, forcerm=True, decode=True, timeout=source.build_seconds,
            labels=IMAGE_LABELS,
        )  # fmt: skip
        _follow(steps, folder, source.build_seconds)
        api.inspect_image(name)
    except (errors.DockerException, TypeError, OSError) as error:
        raise ImageError(f"The image of {folder.parent.name!r} cannot be built: {error}") from None
    return name


def _follow(steps: Iterator[Mapping[str, Any]], folder: Path, seconds: float) -> None:
    deadline, lines = time.monotonic() + seconds, [""]
    for step in steps:
        lines.extend(str(step.get("stream") or "").splitlines())
        del lines[:-_SHOWN_LINES]
        if "error" in step:
            shown = "\n".join(line for line in lines if line.strip())
            raise ImageError(f"The image of {folder.parent.name!r} cannot be built: {step['error']}\n{shown}")
        if time.monotonic() > deadline:
            raise ImageError(f"The image of {folder.parent.name!r} was not built within {seconds:g} s")


def remove_images(client: Any) -> list[str]:
    """Removes the images that Nightjar built and no container uses. Returns their names."""
    removed = []
    used = {container["ImageID"] for container in client.api.containers(all=True)}
    for image in client.api.images(filters={"label": [f"{LABEL}={IMAGE_LABELS[LABEL]}"]}):
        names = image.get("RepoTags") or [image["Id"]]
        if image["Id"] in used:
            logger.warning("The image %s is kept, because a container uses it", names[0])
            continue
        try:
            for name in names:  # by name, because some engines remove an image with several names only by force
                client.api.remove_image(name)
        except docker_sdk().errors.APIError as error:
            logger.warning("The image %s stays: %s", names[0], error.explanation)
            continue
        removed.append(names[0])
    return removed
