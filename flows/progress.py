"""The progress bar of a run in the Prefect UI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact

from nightjar.evaluation import Run
from tasks.away import SERVER_IS_AWAY, is_away, note

logger = logging.getLogger("nightjar.prefect")

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
        await asyncio.wait([moving], timeout=0 if is_away() else _SECONDS)
        if not moving.cancel() and not moving.cancelled() and (error := moving.exception()):
            logger.warning("How far the run is could not be shown: %s", error)


async def _move(run: Run, key: str, is_over: asyncio.Event) -> None:
    title = f"{run.metadata.env_id} | {run.metadata.model}: run {run.run_id}"
    artifact: Any = None
    while True:
        has_ended = is_over.is_set()
        try:
            if artifact is None:
                artifact = await acreate_progress_artifact(_percent(run), key=f"progress-{key}", description=title)
            else:
                await aupdate_progress_artifact(artifact, _percent(run))
            note(away=False)
        except SERVER_IS_AWAY:
            note(away=True)
        if has_ended:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), _SECONDS)


def _percent(run: Run) -> float:
    progress = run.progress
    return round(100 * progress.done / progress.total, 2) if progress.total else 100.0
