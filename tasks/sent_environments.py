"""Sends environments to workers through Prefect's result storage, under the hash of their files."""

from __future__ import annotations

import asyncio

from prefect.results import aget_default_result_storage

from nightjar.environments.packages.provided import SENT, has_sent, keep_sent
from nightjar.errors import EnvironmentPackageError


async def send(source: str, archive: bytes) -> None:
    storage = await aget_default_result_storage()
    await storage.write_path(_path(source), archive)


async def receive(source: str) -> None:
    """Fetches a sent environment if it is missing here; does nothing for other sources."""
    if not source.startswith(SENT) or await asyncio.to_thread(has_sent, source):
        return
    storage = await aget_default_result_storage()
    try:
        archive = await storage.read_path(_path(source))
    except Exception as error:
        raise EnvironmentPackageError(
            f"Environment {source} is not in the result storage of this worker: {error}. Sender and worker "
            "need a shared storage, such as one block that both name in PREFECT_DEFAULT_RESULT_STORAGE_BLOCK"
        ) from error
    await asyncio.to_thread(keep_sent, source, archive)


def _path(source: str) -> str:
    return f"nightjar-environments/{source.removeprefix(SENT)}.zip"
