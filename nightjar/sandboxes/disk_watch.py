"""Ends containers that write more than they may, because most engines cannot limit the disk of a container."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from nightjar.sandboxes.engine import Engine
from nightjar.sandboxes.ownership import OWNER_LABEL, owner_labels

_POLL_SECONDS = 5.0
_MEGABYTE = 2**20
logger = logging.getLogger(__name__)


class DiskWatch:
    """Asks the engine every few seconds for the sizes of this process's containers, while there are any."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._limits: dict[str, tuple[int, Callable[[str], None]]] = {}
        self._watching: asyncio.Task[None] | None = None

    def add(self, container: str, megabytes: int, too_large: Callable[[str], None]) -> None:
        """Watches a container. ``too_large`` gets the reason before the container is killed."""
        self._limits[container] = megabytes, too_large
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    def remove(self, container: str) -> None:
        """Stops watching a container."""
        self._limits.pop(container, None)
        if not self._limits and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        while self._limits:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                sizes = await self._engine.run(self._sizes)
            except Exception as error:  # noqa: BLE001 - the engine may be restarting
                logger.debug("The sizes of containers are unknown: %s", error)
                continue
            for container, size in sizes.items():
                most, too_large = self._limits.get(container, (0, None))
                if too_large is not None and size > most * _MEGABYTE:
                    self._limits.pop(container)
                    too_large(f"it wrote {size // _MEGABYTE} MB, and may write {most} MB (storage_mb)")
                    await self._engine.run(self._kill, container)

    def _sizes(self) -> dict[str, int]:
        own = f"{OWNER_LABEL}={owner_labels()[OWNER_LABEL]}"
        found = self._engine.api.containers(size=True, filters={"label": [own]})
        return {str(each["Id"]): int(each.get("SizeRw") or 0) for each in found}

    def _kill(self, container: str) -> None:
        try:
            self._engine.api.kill(container)
        except Exception as error:  # noqa: BLE001 - it has just ended
            logger.debug("Container %s is not killed: %s", container, error)
