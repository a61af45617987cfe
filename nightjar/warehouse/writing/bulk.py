"""Publishes many run directories into one warehouse, several at a time, and goes on after a bad one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nightjar.errors import NightjarError
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.packing import FAN_IN, tidy
from nightjar.warehouse.writing.publish_report import PublishReport
from nightjar.warehouse.writing.publishing import publish_run

Progress = Callable[[int, int], None]
"""Is told how much is done, and of how much."""

_MOST_AT_ONCE = 4


def silent(_done: int, _total: int) -> None:
    """A progress that nobody watches."""


def publish_all(
    store: Store, run_dirs: Sequence[Path], progress: Progress = silent, *, anew: bool = False
) -> Iterator[tuple[Path, PublishReport | NightjarError]]:
    """Yields each run directory with what its publish said, or why it failed; packs now and then.

    A run directory may be written while it is read; so one that cannot be read gets a second chance at the end.
    """
    failed: list[Path] = []
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, os.cpu_count() or 1)) as pool:
        try:
            outcomes = pool.map(lambda run_dir: _publish(store, run_dir, anew=anew), run_dirs)
            for done, (run_dir, outcome) in enumerate(zip(run_dirs, outcomes, strict=True), start=1):
                progress(done, len(run_dirs))
                if done % FAN_IN == 0:
                    tidy(store)
                if isinstance(outcome, PublishReport):
                    yield run_dir, outcome
                else:
                    failed.append(run_dir)
        finally:
            pool.shutdown(cancel_futures=True)
    for run_dir in failed:
        yield run_dir, _publish(store, run_dir, anew=anew)


def _publish(store: Store, run_dir: Path, *, anew: bool) -> PublishReport | NightjarError:
    try:
        return publish_run(store, run_dir, anew=anew)
    except NightjarError as error:
        return error
