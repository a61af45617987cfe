"""The progress bar of a run in the Prefect UI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact

from nightjar.evaluation import Run

logger = logging.getLogger("nightjar.flows")

_SECONDS = 2.0


@asynccontextmanager
async def progress_artifact(run: Run, key: str) -> AsyncIterator[None]:
    """Shows how far a run is, while the block lasts, in an artifact that moves every two seconds."""
    is_over = asyncio.Event()
    moving = asyncio.get_running_loop().create_task(_move(run, key, is_over))
    try:
        yield
    finally:
        is_over.set()
        await moving


async def _move(run: Run, key: str, is_over: asyncio.Event) -> None:
    try:
        title = f"{run.metadata.env_id} | {run.metadata.model}: run {run.run_id}"
        artifact = await acreate_progress_artifact(_percent(run), key=f"progress-{key}", description=title)
        assert isinstance(artifact, UUID)
        has_ended = False
        while not has_ended:
            with suppress(TimeoutError):
                has_ended = await asyncio.wait_for(is_over.wait(), _SECONDS)
            await aupdate_progress_artifact(artifact, _percent(run))
    except Exception as error:  # noqa: BLE001 - a progress bar is not worth a run
        logger.warning("Cannot show the progress: %s", error)


def _percent(run: Run) -> float:
    progress = run.progress
    return round(100 * progress.done / progress.total, 2) if progress.total else 100.0
