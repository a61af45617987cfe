"""The progress bar of a run in the Prefect UI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact

from nightjar.evaluation import Run
from tasks.away import SERVER_IS_AWAY, is_away, note

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
        moving.cancel()


async def _move(run: Run, key: str, is_over: asyncio.Event) -> None:
    title = f"{run.metadata.env_id} | {run.metadata.model}: run {run.run_id}"
    artifact = await acreate_progress_artifact(_percent(run), key=f"progress-{key}", description=title)
    assert isinstance(artifact, UUID)
    has_ended = False
    while not has_ended:
        with suppress(TimeoutError):
            has_ended = await asyncio.wait_for(is_over.wait(), _SECONDS)
        try:
            await aupdate_progress_artifact(artifact, _percent(run))
            note(away=False)
        except SERVER_IS_AWAY:
            note(away=True)


def _percent(run: Run) -> float:
    progress = run.progress
    return round(100 * progress.done / progress.total, 2) if progress.total else 100.0
